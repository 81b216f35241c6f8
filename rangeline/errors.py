"""The error tree: every failure a user can meet has a class here, and each class names its remedy.

::

    RangelineError
    ├── BadInputError (ValueError)        what a person gave is not usable
    │   ├── ConfigError                   a setting is unknown or out of range
    │   ├── DataContractError             a prompt row breaks the data contract
    │   ├── ReferenceCheckError           references do not score right against themselves
    │   ├── PoolError                     a pool is empty, too small or not disjoint
    │   ├── CalibrationError              too few rows for alpha, or unusable scores and weights
    │   ├── AnchorError                   conditions, anchors or metric head cannot be used
    │   └── ModelLoadError                a model, tokenizer or rubric cannot be loaded
    ├── JudgeError (RuntimeError)         the judge gave nothing usable
    │   ├── JudgeBudgetError              the budget of calls, tokens or money is spent
    │   ├── JudgeDriftError               the judge no longer says what it said at calibration
    │   └── JudgeUnreliableError          the judge's verdicts turn with things that mean nothing
    ├── RolloutError (RuntimeError)       the policy could not be sampled
    │   ├── StaleWeightsError             an engine holds other weights than the trainer
    │   ├── WeightSyncError               an engine could not take the trainer's weights
    │   └── EngineDiedError               a sampling server is gone
    ├── NoSignalError (RuntimeError)      every advantage of an iteration is zero
    │   └── NothingKeptError              a reward filter left no prompt, however many were drawn
    ├── OverlapError (RuntimeError)       source and target states hardly overlap
    ├── CoverageAlarmError (RuntimeError) intervals do not cover as often as promised
    ├── MismatchError (RuntimeError)      sampler and trainer do not agree on the rollouts
    ├── NonFiniteError (RuntimeError)     a loss or a statistic is not a finite number
    ├── CheckpointError (RuntimeError)    a checkpoint is incomplete or does not match
    ├── LineageError (RuntimeError)       an artifact does not match its recorded hash
    ├── BusyError (RuntimeError)          another process works at the same run or workspace
    ├── NotWritableError (OSError)        a folder or file may not be written to
    ├── DiskFullError (OSError)           nothing more can be written; what is whole stays whole
    ├── StoppedError (RuntimeError)       a person or a scheduler asked the run to stop, and it did
    └── ToolError (RuntimeError)          an outside tool (dvc, a child process) failed

Messages follow one form: the thing, the rule, the value, the place, the next step.
"""

from typing import Literal

SyncFailure = Literal["update refused", "update broken", "update failed", "unusable"]
"""How an engine can fail to take weights: nothing was changed, half was, something else went wrong, or it never can."""


class RangelineError(Exception):
    """Base of every error that Rangeline raises on purpose; the CLI prints its text and no traceback."""

    exit_code = 1


class BadInputError(RangelineError, ValueError):
    """Something a person gave cannot be used; correct it and run again."""

    exit_code = 2


class ConfigError(BadInputError):
    """A setting is unknown or out of range; correct `params.yaml`, the form or the option."""


class DataContractError(BadInputError):
    """A prompt row breaks the data contract; correct the row that the message names."""


class ReferenceCheckError(DataContractError):
    """References do not score right against themselves; correct the listed rows or choose another suite."""


class PoolError(BadInputError):
    """A pool is empty, too small or overlaps another; change the shares or add prompts."""


class CalibrationError(BadInputError):
    """Calibration cannot give the promised intervals; add labelled rows or raise alpha."""


class AnchorError(BadInputError):
    """Conditions, anchors or the metric head cannot be used; correct the condition file, or make the anchors again."""


class ModelLoadError(BadInputError):
    """A model, tokenizer or rubric cannot be loaded; check its name, folder and files."""


class JudgeError(RangelineError, RuntimeError):
    """The judge gave nothing usable; try its rubric on a few rows, or choose another judge."""

    exit_code = 3


class JudgeBudgetError(JudgeError):
    """The judge's budget is spent; what was answered is cached, raise `judge.budget` and run again."""


class JudgeDriftError(JudgeError):
    """The judge changed since calibration; calibrate anew with the judge as it is, or bring the old one back."""


class JudgeUnreliableError(JudgeError):
    """The judge's verdicts turn with the order of replies or from call to call; ask it otherwise, or take another."""


class RolloutError(RangelineError, RuntimeError):
    """The policy could not be sampled; the message names the prompt."""

    exit_code = 3


class StaleWeightsError(RolloutError):
    """An engine holds other weights than the trainer; sync it again before sampling."""


class WeightSyncError(RolloutError):
    """An engine could not take the trainer's weights and waits, paused; sync a complete checkpoint again.

    Parameters
    ----------
    message
        What the person reads.
    state
        Name of the state the engine is left in.
    """

    def __init__(self, message: str, *, state: SyncFailure = "update failed") -> None:
        super().__init__(message)
        self.state = state


class EngineDiedError(RolloutError):
    """A sampling server is gone; the same command starts it again and goes on from the last checkpoint."""


class NoSignalError(RangelineError, RuntimeError):
    """Every advantage of an iteration is zero; use harder or easier prompts, or another estimator."""

    exit_code = 3


class NothingKeptError(NoSignalError):
    """A reward filter left no prompt; lower its threshold, allow more refills, or take other prompts."""


class OverlapError(RangelineError, RuntimeError):
    """Source and target states hardly overlap; collect fresh labels nearer to the target."""

    exit_code = 4


class CoverageAlarmError(RangelineError, RuntimeError):
    """Intervals do not cover as often as promised; recalibrate, or continue and mark the run."""

    exit_code = 4


class MismatchError(RangelineError, RuntimeError):
    """Sampler and trainer give the rollouts other log-probs; sample in the trainer's precision, or correct for it."""

    exit_code = 3


class NonFiniteError(RangelineError, RuntimeError):
    """A loss or a statistic is not finite; the last good checkpoint is kept, lower the learning rate."""

    exit_code = 3


class CheckpointError(RangelineError, RuntimeError):
    """A checkpoint is incomplete or does not match its manifest; resume from the one before."""

    exit_code = 5


class LineageError(RangelineError, RuntimeError):
    """An artifact does not match its recorded hash; restore it from DVC, or make it again."""

    exit_code = 5


class ToolError(RangelineError, RuntimeError):
    """An outside tool failed; its own last lines are in the message."""

    exit_code = 6


class BusyError(RangelineError, RuntimeError):
    """Another process works at the same thing; wait until it has ended, or end it."""

    exit_code = 2


class NotWritableError(RangelineError, OSError):
    """A folder or file may not be written to; give this user the right, or work elsewhere."""

    exit_code = 2


class DiskFullError(RangelineError, OSError):
    """Nothing more can be written; make room and give the same command again."""

    exit_code = 7


class StoppedError(RangelineError, RuntimeError):
    """A signal asked the run to stop and it stopped at a safe point; the same command goes on."""

    exit_code = 130
