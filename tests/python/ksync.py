"""src/policy/ksync.c in Python."""

from typing import Optional

import paceline


class KSync(paceline.Policy):
    name = "my-ksync"
    brief = "wait for the first K workers on one version; cancel or drop the rest"
    options = {
        "k": paceline.options.Count("all", 1, 1000000, "workers an update waits for"),
        "cancel": paceline.options.Bool(True, help="restart the other workers at an update"),
    }
    uses = {"k"}

    k: int
    cancel: bool

    def check(self, n_workers: int) -> Optional[str]:
        return None if self.k <= n_workers else "k cannot be more than the number of workers"

    def cancels(self) -> str:
        return "all" if self.cancel else "none"

    def close(self, plan: paceline.Plan) -> None:
        plan.commit()
        plan.start_idle()
        if self.cancel:
            plan.restart_busy()

    def arrive(self, view: paceline.View, arrival: paceline.Arrival, plan: paceline.Plan) -> None:
        if arrival.lag > 0:
            plan.drop()
            plan.start(arrival.worker)
            return
        plan.take()
        if view.n_taken + 1 >= view.k or view.n_busy == 0:
            self.close(plan)

    def leave(self, view: paceline.View, worker: int, plan: paceline.Plan) -> None:
        if view.n_taken > 0 and view.n_busy == 0:
            self.close(plan)
