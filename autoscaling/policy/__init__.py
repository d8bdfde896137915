"""Number of replicas of each engine: a pure policy over plain data and an explicit clock.

    policy = ScalingPolicy({"chat-a": Terms(...), "chat-b": Terms(...)})
    decisions = policy.decide({"chat-a": Facts(...), "chat-b": Facts(...)}, {"GPU": 1.0}, now_s)
    decisions["chat-a"].replicas, decisions["chat-a"].why

Once a second or so, production and simulation hand in the `Facts` of all engines, what there is in all of the
resources that they share, and Unix time in seconds; each engine gets a `ScalingDecision`. What was learned lives in the
policy and nowhere else: the same inputs in the same order give the same decisions. A clock that jumps by more than a
minute is taken to have been reset: what was measured keeps its age.

facts.py    Terms that an operator sets, Facts that come in, the decision that goes out
demand.py   predicted waits, from work in seconds
gaps.py     gaps between requests by hour of the week, and how long to stay warm for them
memory.py   what is remembered of one engine from one look to the next
scaling.py  the decision; engines that share GPUs or memory
options.py  a stanza's terms, and the policy as an option of its deployment
serve.py    the policy of one deployment, as Serve's controller calls it
shared.py   what the policies of all deployments share there
reports.py  reports of replicas about their work
"""

from autoscaling.policy.facts import Facts, ScalingDecision, Terms
from autoscaling.policy.scaling import ScalingPolicy

__all__ = ["Facts", "ScalingDecision", "ScalingPolicy", "Terms"]
