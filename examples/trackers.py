"""Evaluations and the final summary in TensorBoard, Weights & Biases or MLflow, three lines each.

    paceline.simulate(method="async", updates=400, on_point=tensorboard("runs/async"))

    pl.Optimizer(sgd, model, "sync", evaluate=f, on_point=tensorboard("runs/sync"))

A tracker is a function of a `paceline.Point` or a `paceline.torch.Evaluation`. `finish` logs the
summary of a run: `on_end=lambda run: finish(run, mlflow.log_metric)`.
Tested on stand-ins with the same calls, because Debian has none of the three packages."""

from typing import Any, Callable


def tensorboard(folder: str) -> Callable[[Any], Any]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    return lambda p: writer.add_scalar("test_loss", p.test_loss, p.updates)


def wandb(project: str, **config: Any) -> Callable[[Any], Any]:
    import wandb

    run = wandb.init(project=project, config=config)
    return lambda p: run.log({"test_loss": p.test_loss, "time": p.time}, step=p.updates)


def mlflow(name: str, **config: Any) -> Callable[[Any], Any]:
    import mlflow

    mlflow.start_run(run_name=name)
    mlflow.log_params(config)
    return lambda p: mlflow.log_metric("test_loss", p.test_loss, step=p.updates)


def finish(run: Any, log: Callable[[str, float], Any]) -> None:
    """Calls log(name, number) for every number of the summary: finish(run, mlflow.log_metric)."""
    for name, value in getattr(run, "json", run).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            log(name, value)
