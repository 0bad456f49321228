"""The ASGI application of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

import fewstep.serve.requests as work
from fewstep.decoding import DecodingMemoryError
from fewstep.explanation import Explanation
from fewstep.serve import clients
from fewstep.serve.access import Access
from fewstep.serve.batching import Answer, Backlog, Batcher, BusyError, Options
from fewstep.serve.body import BodyLimit
from fewstep.serve.forms import Forms
from fewstep.serve.messages import Application, problem
from fewstep.serve.metrics import CONTENT_TYPE, Metrics
from fewstep.serve.observe import Observer
from fewstep.serve.schemas import (
    LIBRE,
    OWN,
    AnyTranslateRequest,
    DeeplAnswer,
    DeeplLanguage,
    DeeplProblem,
    DeeplRequest,
    DetectedLanguage,
    DetectRequest,
    ExplainAnswer,
    ExplainRequest,
    FrontendSettings,
    GlossaryLanguages,
    Health,
    Language,
    LibreAnswer,
    LibreProblem,
    LibreRequest,
    Problem,
    SharedProblem,
    SystemAnswer,
    SystemDescription,
    SystemsAnswer,
    TranslateAnswer,
    TranslateRequest,
)
from fewstep.serve.settings import Settings
from fewstep.system.system import System
from fewstep.translation import SourceTooLongError

T = TypeVar("T")
PAGE = Path(__file__).with_name("page.html")
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not UTF-8 or not JSON; for clients of other servers also a value that is not valid."},
    401: {"description": "The bearer token is missing or wrong."},
    403: {"description": "A page of another site asks a loopback server, or sends a form; the key in the body is wrong."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body, a sentence, or the number of sentences is too large."},
    415: {"description": "The content type is neither JSON nor, where they are taken, that of a form."},
    421: {"description": "The name of a server on a loopback address is another one."},
    422: {"description": "A value is not valid; the message lists the known systems or searches."},
    429: {"description": "The queue is full, or the address sends too many requests."},
    500: {"description": "The server failed; its log has the reason."},
    503: {"description": "Too many connections have a request in progress."},
    507: {"description": "The memory does not suffice for a sentence."},
}
HEALTH: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "The server shuts down."}}
OTHER_CLIENTS = frozenset({"/detect", "/v2/glossary-language-pairs", "/v2/languages", "/v2/translate"})
"""Paths of clients of other servers alone."""
CLIENT_CLOSED_REQUEST = 499
NOTHING = Answer([], 0.0, 0.0, 0)
"""The answer to texts without a sentence."""


class Server:
    """The state behind the paths of an application: systems, queues and metrics."""

    def __init__(self, systems: Mapping[str, System], settings: Settings) -> None:
        self.systems = dict(systems)
        self.settings = settings
        self.metrics = Metrics()
        # One batch is decoded at a time, with all threads, so that the times of systems do not contain each other.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self._backlog = Backlog(settings.max_waiting, self.metrics)
        self._batchers: dict[str, Batcher] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Decode batches within the context."""
        for name, system in self.systems.items():
            decode = work.decoder_of(system, self.settings.threads)
            self._batchers[name] = Batcher(name, decode, self._executor, self._backlog, self.metrics, self.settings.max_batch)
        tasks = [asyncio.create_task(batcher.run()) for batcher in self._batchers.values()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)
            self._executor.shutdown()
            # FastAPI keeps the functions of paths, and this object with them, until Python ends; the extension's objects must go.
            self._batchers.clear()
            self.systems.clear()

    async def translate(self, request: TranslateRequest) -> TranslateAnswer:
        """Return the translations by each system, one system after the other. Raises HTTPException."""
        work.check_size(request.sentences, self.settings)
        chosen = work.choices(request, self.systems, self.settings)
        return TranslateAnswer(systems=[await self._translate(name, request, options) for name, options in chosen])

    async def explain(self, request: ExplainRequest) -> ExplainAnswer:
        """Return the graph or lattice of a sentence. Raises HTTPException."""
        work.check_size([request.sentence], self.settings)
        name = request.system or next(iter(self.systems))
        chosen = work.options(self.systems, name, request.search, 1, self.settings)
        system = self.systems[name]
        threads = self.settings.threads

        def explained() -> Explanation | None:
            first = next(iter(system.split(request.sentence).sentences), "")
            return system.explain(first, chosen.search, threads=threads)

        try:
            found = await self._batchers[name].call(explained)
        except BusyError as error:
            raise HTTPException(429, str(error), {"retry-after": "1"}) from error
        except SourceTooLongError as error:
            raise HTTPException(413, f"sentence: {error.problem}") from error
        return work.explain_answer(found)

    async def _translate(self, name: str, request: TranslateRequest, options: Options) -> SystemAnswer:
        system = self.systems[name]
        # In a thread: splitting a megabyte takes seconds.
        splits = await asyncio.to_thread(work.split, system, request.sentences, request.one_sentence_per_line, self.settings)
        sentences = [sentence for one in splits for sentence in one.sentences]
        try:
            answer = await self._batchers[name].translate(sentences, options) if sentences else NOTHING
        except BusyError as error:
            raise HTTPException(429, str(error), {"retry-after": "1"}) from error
        except DecodingMemoryError as error:
            raise HTTPException(507, str(error)) from error
        except SourceTooLongError as error:
            raise HTTPException(413, f"sentences: {error.problem}") from error
        best = [ranked[0] for ranked in answer.outputs]
        self.metrics.steps(name, options.search, sum(one.steps for one in best))
        self.metrics.cut(name, sum(one.cut > 0 for one in best))
        return work.system_answer(name, options, work.joined(answer, splits, system.target_language))


def create_app(systems: Mapping[str, System], settings: Settings) -> Observer:
    """Return the ASGI application that serves systems; the first one is the default."""
    # Warnings about single lines (cut, invalid characters) number the lines of a batch, and clients could fill the log with them.
    logging.getLogger("fewstep").setLevel(logging.ERROR)
    logging.getLogger("fewstep.serve").setLevel(logging.WARNING)
    server = Server(systems, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server.running():
            yield

    # The pages of FastAPI that show the document load scripts from elsewhere, so they are switched off.
    app = FastAPI(title="fewstep", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    _add_paths(app, server)
    guarded: Application = Access(BodyLimit(Forms(app, settings), settings), app, settings)
    if settings.cors_origins:
        methods = ("GET", "POST")
        headers = ("authorization", "content-type")
        guarded = CORSMiddleware(guarded, settings.cors_origins, methods, headers)
    return Observer(guarded, server.metrics)


def _secured(problem: type) -> dict[str, Any]:
    """Return the options of a path that asks for the token and answers errors as `problem`."""
    responses = {status: {**described, "model": problem} for status, described in ERRORS.items()}
    return {"dependencies": [Depends(HTTPBearer(auto_error=False))], "responses": responses}


async def _as_invalid(answer: Awaitable[T]) -> T:
    """Return an answer for other clients, which know the status 400 for values that are not valid, but not 422."""
    try:
        return await answer
    except HTTPException as error:
        if error.status_code == 422:
            raise clients.InvalidError(str(error.detail)) from error
        raise


def _add_paths(app: FastAPI, server: Server) -> None:
    secured, shared, libre, deepl = (_secured(kind) for kind in (Problem, SharedProblem, LibreProblem, DeeplProblem))

    def form_of(kind: type) -> dict[str, Any]:
        """Return the description of a body that may be a form (`fewstep.serve.forms`)."""
        schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
        kinds = ("application/x-www-form-urlencoded", "multipart/form-data")
        return {"requestBody": {"content": {kind: {"schema": schema} for kind in kinds}}}

    @app.post("/translate", response_model=TranslateAnswer | LibreAnswer, openapi_extra=form_of(LibreRequest), **shared)
    async def translate(request: Request, body: Annotated[AnyTranslateRequest, Body()]) -> Any:
        """Translate texts with one or several systems, also for clients of LibreTranslate."""
        if isinstance(body, TranslateRequest):
            return await _unless_hung_up(request, server.translate(body))
        answer = await _unless_hung_up(request, _as_invalid(clients.libre_translate(server, body)))
        return JSONResponse(answer.model_dump(exclude_none=True))

    @app.post("/detect", openapi_extra=form_of(DetectRequest), **libre)
    async def detect(body: DetectRequest) -> list[DetectedLanguage]:
        """Identify the language of a text, among the source languages of the server, as LibreTranslate does."""
        return await _as_invalid(clients.libre_detect(server, body))

    @app.get("/languages")
    async def languages() -> list[Language]:
        """List the languages of the server, as LibreTranslate does."""
        return clients.libre_languages(server)

    @app.get("/frontend/settings")
    async def frontend_settings() -> FrontendSettings:
        """Return the limits of the server and its first languages, as LibreTranslate does."""
        return clients.libre_settings(server)

    @app.post("/v2/translate", openapi_extra=form_of(DeeplRequest), **deepl)
    async def deepl_translate(request: Request, body: DeeplRequest) -> DeeplAnswer:
        """Translate texts for clients of DeepL."""
        return await _unless_hung_up(request, _as_invalid(clients.deepl_translate(server, body)))

    @app.get("/v2/languages", **deepl)
    async def deepl_languages(request: Request, type: Literal["source", "target"] | None = None) -> list[DeeplLanguage]:
        """List the languages of the server for clients of DeepL, which send `type` as a form."""
        try:
            form = parse_qs((await request.body()).decode(), max_num_fields=10).get("type", ["source"])
        except ValueError as error:
            raise clients.InvalidError(f"body: expected a form with the field type, got: {error}") from error
        return clients.deepl_languages(server, type or form[0])

    @app.get("/v2/glossary-language-pairs", **deepl)
    async def deepl_glossary_languages() -> GlossaryLanguages:
        """Return that clients of DeepL have no glossaries here."""
        return GlossaryLanguages()

    @app.post("/explain", **secured)
    async def explain(request: Request, body: ExplainRequest) -> ExplainAnswer:
        """Return the graph or lattice from which a search chose its translation."""
        return await _unless_hung_up(request, server.explain(body))

    @app.get("/systems", **secured)
    async def systems() -> SystemsAnswer:
        """List the loaded systems with their searches."""
        return SystemsAnswer(systems=[_description(name, system) for name, system in server.systems.items()])

    @app.get("/health", responses=HEALTH)
    @app.get("/healthz", responses=HEALTH)
    async def healthz(request: Request, response: Response) -> Health:
        """Report whether the server accepts requests."""
        draining = request.scope.get("fewstep.draining", False)
        response.status_code = 503 if draining else 200
        return Health(status="draining" if draining else "ok")

    @app.get("/metrics", response_class=Response, **secured)
    async def metrics() -> Response:
        """Return metrics in the format of Prometheus."""
        return Response(server.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"), headers=PAGE_HEADERS)


def _description(name: str, system: System) -> SystemDescription:
    return SystemDescription(
        name=name,
        family=system.family,
        source_language=system.source_language,
        target_language=system.target_language,
        searches={label: work.plain(search.values()) for label, search in system.searches.items()},
        default_search=system.default_search,
    )


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer 422, or 400 to other clients, without the invalid value, which may be large or no valid text."""
    assert isinstance(error, RequestValidationError)
    places = [[str(part) for part in problem["loc"][1:]] for problem in error.errors()[:5]]
    kinds = {place.pop(0) for place in places if place and place[0] in (OWN, LIBRE)}
    problems = [f"{'.'.join(place) or 'body'}: {problem['msg']}" for place, problem in zip(places, error.errors(), strict=False)]
    detail = "; ".join(problems).encode("utf-8", "replace").decode()
    return _answer(request, 400 if LIBRE in kinds or request.url.path in OTHER_CLIENTS else 422, detail)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer with the status and the message of an error."""
    assert isinstance(error, StarletteHTTPException)
    detail = str(error.detail)
    if error.status_code == 400 and not isinstance(error, clients.InvalidError):  # FastAPI's, for JSON that the parser gives up
        detail = f"body: expected JSON of a few levels, got: {detail}"
    return _answer(request, error.status_code, detail, error.headers)


async def _failed(request: Request, _: Exception) -> JSONResponse:
    """Answer 500. The error itself goes to the log alone."""
    return _answer(request, 500, "the server failed; its log has the reason")


def _answer(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(problem(request.url.path, detail), status, headers)


async def _unless_hung_up(request: Request, answer: Awaitable[T]) -> T:
    """Return the answer. If the client closes the connection first, cancel the work and raise HTTPException (499)."""
    working = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise HTTPException(CLIENT_CLOSED_REQUEST, "the client closed the connection")
    finally:
        working.cancel()
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
