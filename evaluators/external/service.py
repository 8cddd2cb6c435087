"""A simulator that is a service by HTTP: a document is posted, and metrics come back within bounds."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from dse.evaluators.accounting.external_evaluators import ExternalEvaluator
from dse.evaluators.external.question_document import describe_question, read_metrics
from dse.evaluators.external.retries import TransientError, retry_question
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.workload import WorkloadCase

RETRIED_STATUS = (408, 425, 429)
"""Statuses below 500 after which the same question may be answered."""
CHUNK_BYTES = 65_536
MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True)
class ExternalService:
    """An address that answers a posted JSON document with another.

    Attributes:
        url: http or https.
        time_limit: of one answer, its last byte included. [s]
        answer_limit: size of an answer. [B]
        tries: questions at most. Another follows after no connection, a time limit, status 5xx, 408, 425 or 429, and rubbish.
        pause: before the second question; twice as long before each further one. [s]
        headers: beside the content type, such as an authorization.
    """

    url: str
    time_limit: float = 60.0
    answer_limit: float = 64e6
    tries: int = 3
    pause: float = 0.5
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, document: Any) -> Any:
        """Document that the service answers to another.

        Raises:
            DesignError: no answer, a refusal, or an answer that is no JSON.
        """
        return self.ask_for(document, lambda answer: answer)

    def ask_for(self, document: Any, read: Callable[[Any], Any]) -> Any:
        """Value of what the service answers; what `read` raises counts as a failure of the service.

        Raises:
            DesignError: as `ask`, or an answer that cannot be read.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DesignError(f"external service: {self.url[:80]!r} is no address of http or https")
        return retry_question(
            parts.netloc.rpartition("@")[2][:60], self.tries, self.pause, lambda: self._ask_once(document, read)
        )

    def _ask_once(self, document: Any, read: Callable[[Any], Any]) -> Any:
        request = Request(
            self.url,
            data=json.dumps(document).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json", **self.headers},
            method="POST",
        )
        until = time.monotonic() + self.time_limit
        try:
            with urlopen(request, timeout=self.time_limit) as response:  # `ask_for` has checked the scheme
                content = self._read_bounded(response, until)
        except HTTPError as error:
            with error:
                last_line = self._last_line(error)
            if error.code >= 500 or error.code in RETRIED_STATUS:
                raise TransientError(f"status {error.code}{last_line}") from None
            raise DesignError(f"status {error.code}{last_line}") from None
        except TimeoutError:
            raise TransientError(f"no answer within {self.time_limit:g} s") from None
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise TransientError(f"no answer within {self.time_limit:g} s") from None
            raise TransientError(f"no connection: {getattr(error.reason, 'strerror', None) or error.reason}") from None
        except (HTTPException, OSError) as error:
            raise TransientError(f"the connection broke: {type(error).__name__}") from None
        try:
            return read(json.loads(content))
        except (DesignError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            what = str(error).splitlines()[0][:MESSAGE_CHARS] if str(error) else type(error).__name__
            raise TransientError(f"the answer cannot be read: {what}") from None

    def _read_bounded(self, response: HTTPResponse, until: float) -> bytes:
        """Body of an answer.

        Raises:
            DesignError: it is larger than it may be.
            TransientError: it takes longer than it may.
        """
        parts, size = list[bytes](), 0
        while part := response.read1(CHUNK_BYTES):
            parts.append(part)
            size += len(part)
            if size > self.answer_limit:
                raise DesignError(f"an answer of more than {self.answer_limit / 1e6:g} MB; raise answer_limit, or answer less")
            if time.monotonic() > until:
                raise TransientError(f"no whole answer within {self.time_limit:g} s")
        return b"".join(parts)

    def _last_line(self, error: HTTPError) -> str:
        """Last line of the body of a refusal after a colon; empty string if it has none."""
        try:
            lines = error.read(CHUNK_BYTES).decode(errors="replace").strip().splitlines()
        except (OSError, HTTPException):
            return ""
        text = "".join(character if character.isprintable() else " " for character in lines[-1]) if lines else ""
        return f": {text[:MESSAGE_CHARS]}" if text else ""


def service_evaluator(
    about: str,
    service: ExternalService,
    answers: Callable[[Design, WorkloadCase], bool],
    *,
    write: Callable[[dict[str, Any]], Any] | None = None,
    read: Callable[[Any], Mapping[str, float]] = read_metrics,
) -> ExternalEvaluator:
    """Evaluator that asks a service, for an entry point of the group dse.evaluator.

    Args:
        about: what the service is, in a few words.
        service: address and bounds.
        answers: whether it supports a design, whatever the values of its leaves, and a type of case.
        write: document that is posted, from that of `describe_question`; None posts this.
        read: metrics in SI by name, from the answer.
    """

    def metrics(design: Design, case: WorkloadCase, closed: Mapping[str, float]) -> Mapping[str, float]:
        document = describe_question(design, case, closed)
        answer: Mapping[str, float] = service.ask_for(document if write is None else write(document), read)
        return answer

    return ExternalEvaluator(about, answers, metrics)
