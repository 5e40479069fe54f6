"""The parameter of lists that names a rule: the list then has only items with its finding."""

from __future__ import annotations

from flask import request

from daskscope_service.insight.findings.rules import RULES
from daskscope_service.web.parameters import Parameter, one_of

#: The names of all rules, in the order in which causes are named.
RULE_NAMES = tuple(rule.name for rule in RULES)

FINDING = Parameter(
    "finding",
    "Only items that have a finding of this rule, and not as the effect of another finding.",
    {"enum": list(RULE_NAMES)},
)


def asked_rule(name: str = FINDING.name) -> str | None:
    """Return the rule that the request's parameter names, or None if it is not given.

    Spaces count as hyphens, because pages show the names with spaces.
    """
    asked = request.args.get(name)
    if asked is None:
        return None
    called = asked.replace(" ", "-")
    return called if called in RULE_NAMES else one_of(name, RULE_NAMES)
