"""Plans of the schemes that come with zenc."""

from functools import cache

from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.plan.ir import Plan

__all__ = ["SHIPPED", "plan_of"]


@cache
def plan_of(scheme: str, size: int) -> Plan:
    return plan_of_shipped(scheme, **({"gpus": min(4, size)} if scheme == "zen_cluster" else {}))
