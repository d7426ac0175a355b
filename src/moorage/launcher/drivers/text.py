"""Plain programs: the prompt on standard input, the answer on standard output."""

from __future__ import annotations

import codecs

from moorage.launcher.drivers.base import Driver, Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.launcher.drivers.base import AgentEvent, DriverChannel, JobTable


class TextDriver(Driver):
    """Writes the prompt, closes the input, and takes all output as the answer."""

    def __init__(self, job: JobTable, line: DriverChannel) -> None:
        super().__init__(job, line)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin(self) -> None:
        parts = (self.job.get("system_prompt"), self.job["prompt"])
        self.line.send("\n\n".join(part for part in parts if part).encode("utf-8", "replace"))
        self.line.close_input()

    def hear(self, data: bytes) -> None:
        self.account.chunk(self._decoder.decode(data))

    def hear_end(self) -> None:
        self.account.chunk(self._decoder.decode(b"", final=True))

    def result(self, exit: Exit) -> AgentEvent:
        text = self.last_words()
        if not exit.is_clean:
            errors = self.line.errors()
            why, was_killed = f"{exit}: {errors}" if errors else str(exit), exit.signal_name is not None
            return self.account.failing("agent_failed", why, text, cut_off=was_killed)
        if not text.strip():
            return self.account.failing("no_answer", "it ended without output", "")
        return self.account.ending("completed", text)

    def last_words(self) -> str:
        return self.account.unsaid.rstrip("\r\n")
