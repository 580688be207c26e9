"""Policies in Python: when is the model updated, and which workers compute next?

A policy is a subclass of `Policy`. It decides in the simulator and in real runs, through the same
interface as a policy in C (include/paceline_policy.h), and the same referee checks what it plans:

    class KSync(paceline.Policy):
        name = "my-ksync"
        options = {"k": paceline.options.Count("all", 1, 1000000, "workers an update waits for")}
        uses = {"k"}

        def arrive(self, view, arrival, plan):
            if arrival.lag > 0:
                plan.drop()
                plan.start(arrival.worker)
                return
            plan.take()
            if view.n_taken + 1 >= view.k or view.n_busy == 0:
                plan.commit()
                plan.start_idle()
                plan.restart_busy()

    run = paceline.simulate(policy=KSync(k=6), workers=8, model="none", updates=100)
"""

from __future__ import annotations

from ._base import Policy
from ._plan import Plan
from ._view import Arrival, View, Worker

__all__ = [
    "Arrival",
    "Plan",
    "Policy",
    "View",
    "Worker",
]
