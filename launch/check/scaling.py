"""Effects of the scaling policy on a profile, and the targets that it cannot reach."""

from __future__ import annotations

from collections.abc import Iterator

from autoscaling.deployment import deployment_options
from autoscaling.policy.options import terms_of
from contract.catalog import Catalog

HEAD = ("deployment", "a start", "one more if a wait passes", "idle for", "warm")


def rows(catalog: Catalog) -> Iterator[tuple[str, ...]]:
    """A line of a table for each model that is set up, under HEAD. Raises DeploymentTableError."""
    for model in catalog.deployed():
        terms = terms_of(model.setup, deployment_options(model))
        more = f"{terms.target_wait_s:g} s, up to {terms.most}" if terms.most > 1 else "-"
        idle = f"{terms.idle_least_s:g}-{terms.idle_most_s:g} s" if not terms.least else "never sleeps"
        warm = ", ".join(f"{'/'.join(hours.days)} {hours.start}-{hours.end} {hours.zone}" for hours in terms.warm)
        yield model.deployment, f"~{terms.load_s:g} s", more, idle, warm or "-"


def remarks(catalog: Catalog) -> Iterator[str]:
    """Targets of stanzas that cannot be reached, one sentence each. Raises DeploymentTableError."""
    for model in catalog.deployed():
        if "target_wait_s" not in model.setup.model_fields_set:
            continue
        terms = terms_of(model.setup, deployment_options(model))
        place = f"{model.noun}.toml [{model.id}]: `target_wait_s` is {terms.target_wait_s:g}"
        if terms.most <= max(terms.least, 1):
            yield f"{place}, but no replica can be added; raise `autoscaling_config.max_replicas`"
        if not terms.least and terms.load_s > terms.target_wait_s:
            yield (
                f"{place}, but a request that finds the engine cold waits for {terms.load_s:g} s; "
                "set `warm` or `autoscaling_config.min_replicas`, or a longer target"
            )
