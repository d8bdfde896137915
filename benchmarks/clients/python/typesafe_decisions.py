"""TypeSafe's SDK: decisions."""

import os

from typesafe_sdk import AsyncTypeSafeClient, Box, Choice, Noul, Score, TypeSafeClient

from steps import run, step

BASE_URL, KEY = os.environ["PARLANCE_URL"], os.environ["PARLANCE_KEY"]
TEXT = "I was charged twice. Please pay it back."
COLD_S = 120
"""A sleeping engine may take longer than the ten seconds that the SDK waits by default."""
APART = 0.2
"""So much more likely is what plainly holds than what plainly does not."""
QUESTIONS = {
    "team": Choice(instructions="Which team?", criteria={"billing": "money", "shipping": "parcels"}),
    "payment": Noul(instructions="Is it about a payment?"),
    "football": Noul(instructions="Is it about football?"),
    "urgent": Score(instructions="How urgent?", criteria=["later", "today", "now"]),
}


@step("decisions")
def decisions():
    with TypeSafeClient(api_key=KEY, base_url=BASE_URL, timeout=COLD_S) as client:
        result = client.system_one(state=TEXT, questions=QUESTIONS, model="decision-v1")
    assert result.choices["team"].choice == "billing"
    assert result.nouls["payment"].noul - result.nouls["football"].noul > APART
    assert abs(sum(result.scores["urgent"].probabilities.values()) - 1) < 0.001


@step("decisions, async, by the other model")
async def decisions_async():
    async with AsyncTypeSafeClient(api_key=KEY, base_url=BASE_URL, timeout=COLD_S) as client:
        result = await client.system_one(state=TEXT, questions=QUESTIONS, model="decision-v2")
    assert result.model == "decision-v2"


@step("boxes in images", cannot="no model here finds places in images", error="questions.q.type")
def boxes():
    with TypeSafeClient(api_key=KEY, base_url=BASE_URL, timeout=COLD_S) as client:
        client.system_one(state=TEXT, questions={"q": Box(instructions="the dog")}, model="decision-v1")


if __name__ == "__main__":
    run()
