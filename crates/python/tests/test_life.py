"""Cancelling, threads, processes, signals, errors."""

import asyncio
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import gristmill
from gristmill import LLM

ENDLESS = {"max_tokens": 450, "ignore_eos": True}


def is_idle(llm, seconds=10.0):
    """Whether no request runs soon."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if llm.stats["running"] == 0 and llm.stats["waiting"] == 0:
            return True
        time.sleep(0.005)
    return False


def test_the_end_of_a_stream_cancels_the_request(llm):
    for end in ("break", "close", "with"):
        stream = llm.stream_text("The", **ENDLESS)
        if end == "with":
            with stream:
                next(stream)
        else:
            next(stream)
        assert end == "with" or llm.stats["running"] == 1
        if end == "close":
            stream.close()
        del stream
        gc.collect()
        assert is_idle(llm, 2), end


def test_a_loop_that_breaks_cancels_the_request(llm):
    for _ in llm.stream_text("The", **ENDLESS):
        break
    assert is_idle(llm, 2)


def test_async_calls_run_together(llm):
    async def run():
        first, second, *streams = await asyncio.gather(
            llm.agenerate("The dog", max_tokens=8, temperature=0),
            llm.agenerate(["The cat", "Lily"], max_tokens=8, temperature=0),
            *(collect(llm.astream_text("The dog", max_tokens=8, temperature=0)) for _ in range(40)),
        )
        assert {text for text in streams} == {first.text} and len(second) == 2
        vectors = await llm.aembed(["a", "b"])
        assert vectors.shape[0] == 2
        assert (await llm.arerank("a dog", ["a car", "a dog"]))[0].index == 1

    async def collect(stream):
        return "".join([str(event) async for event in stream])

    asyncio.run(run())


def test_a_cancelled_task_cancels_its_request(llm):
    async def stream():
        async for _ in llm.astream_text("The", **ENDLESS):
            pass

    async def leave():
        async for _ in llm.astream_text("The", **ENDLESS):
            break

    async def run():
        for work in (stream(), llm.agenerate("The", **ENDLESS), llm.agenerate(["The"] * 20, **ENDLESS), llm.aembed(["The dog sat. " * 80] * 400)):
            task = asyncio.create_task(work)
            while llm.stats["running"] == 0:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert is_idle(llm, 2)
        await leave()
        assert is_idle(llm, 2)

    asyncio.run(run())


def test_waits_release_the_gil(llm):
    ticks, done = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    llm.generate("The", max_tokens=200, ignore_eos=True)
    llm.embed(["The dog sat on the mat. " * 20] * 20)
    done.set()
    thread.join()
    assert ticks > 10


def test_threads_share_an_engine(llm):
    expected = llm.generate("The dog", max_tokens=8, temperature=0).text
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(llm.generate("The dog", max_tokens=8, temperature=0).text))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 12


#: A shell starts what it runs in the background without Ctrl-C, and its children inherit that.
WITH_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def run(program, **options):
    return subprocess.Popen(
        [sys.executable, "-c", WITH_CTRL_C + textwrap.dedent(program)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_ends_a_wait():
    program = run(
        """
        from gristmill import LLM
        llm = LLM("builtin", ctx=8192, threads=1)
        print("ready", flush=True)
        try:
            llm.generate(["The"] * 8, max_tokens=8000, ignore_eos=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        import time
        for _ in range(400):
            if llm.stats["running"] == 0:
                break
            time.sleep(0.01)
        print("idle" if llm.stats["running"] == 0 else "busy", flush=True)
        """
    )
    assert program.stdout.readline() == "ready\n"
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    since = time.monotonic()
    assert program.stdout.readline() == "interrupted\n"
    assert time.monotonic() - since < 2
    assert program.stdout.readline() == "idle\n"
    assert program.wait(20) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork of Unix")
def test_an_engine_refuses_in_a_forked_child():
    program = run(
        """
        import os, sys
        import gristmill
        llm = gristmill.LLM("builtin", ctx=64, threads=2)
        stream = llm.stream_text("The", max_tokens=50, ignore_eos=True)
        next(stream)
        session = llm.engine.session(8)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: llm.generate("The"), lambda: llm.embed("The"), lambda: llm.info, lambda: list(stream),
                         lambda: session.forward([1], False)):
                try:
                    call()
                except gristmill.ForkError as error:
                    refused += "spawn" in str(error)
            llm.close()
            del llm, stream, session
            # Another engine works here.
            with gristmill.LLM("builtin", ctx=64, threads=1) as own:
                refused += own.generate("The", max_tokens=2).finish_reason == "length"
            os._exit(0 if refused == 6 else 10 + refused)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), llm.generate("The", max_tokens=2).finish_reason)
        """
    )
    out, error = program.communicate(timeout=60)
    assert out == "0 length\n", error


def child(prompt):
    with LLM("builtin", ctx=64, threads=1) as llm:
        return llm.generate(prompt, max_tokens=4, temperature=0).text


def test_processes_that_are_spawned_have_engines_of_their_own(llm):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(child, ["The dog"]) == [llm.generate("The dog", max_tokens=4, temperature=0).text]
    with pytest.raises(TypeError, match="open the model in the other one"):
        pickle.dumps(llm)


def test_models_share_a_device(llm):
    with LLM("builtin", device=llm, ctx=64, name="second") as second:
        assert second.info["name"] == "second" and second.info["device"] == llm.info["device"]
        assert second.generate("The dog", max_tokens=4, temperature=0).text == llm.generate("The dog", max_tokens=4, temperature=0).text
    assert llm.generate("The dog", max_tokens=1).finish_reason == "length"
    with pytest.raises(gristmill.OptionError, match="threads: the device is that of another LLM"):
        LLM("builtin", device=llm, threads=2)


@pytest.mark.parametrize(
    ("options", "kind", "builtin", "words"),
    [
        ({"ctx": 0}, gristmill.OptionError, ValueError, "ctx"),
        ({"kv": "q3"}, gristmill.OptionError, ValueError, "kv"),
        ({"model": "missing.gguf"}, gristmill.ModelFileError, OSError, "missing.gguf: no such file"),
        ({"model": __file__}, gristmill.ModelFileError, OSError, "test_life.py"),
        ({"model": ""}, gristmill.OptionError, ValueError, "model: the name is empty"),
        ({"model": "a/b", "offline": True}, gristmill.ModelFileError, OSError, "a/b"),
        ({"device": "abacus"}, gristmill.DeviceError, RuntimeError, "abacus"),
        ({"kernels": "missing"}, gristmill.OptionError, ValueError, "kernels missing: there is no such folder"),
        ({"cpu_memory": "1MB"}, gristmill.OutOfMemoryError, MemoryError, "memory"),
        ({"sampling": gristmill.SamplingParams(n=2)}, gristmill.OptionError, ValueError, "sampling: n"),
    ],
)
def test_a_model_that_is_not_opened_has_a_class_for_the_cause(options, kind, builtin, words):
    with pytest.raises(kind, match=words) as error:
        LLM(**{"model": "builtin", **options})
    assert isinstance(error.value, builtin) and isinstance(error.value, gristmill.GristmillError)
    assert "--" not in str(error.value) and "\n" not in str(error.value)


def test_a_request_that_is_refused_has_a_class_for_the_cause(llm):
    with pytest.raises(gristmill.BadRequestError, match="top_p") as error:
        llm.generate("The", top_p=2)
    assert error.value.param == "top_p" and pickle.loads(pickle.dumps(error.value)).param == "top_p"
    with pytest.raises(gristmill.BadRequestError, match="top_q: there is no such parameter"):
        llm.generate("The", top_q=2)
    with pytest.raises(gristmill.ContextLengthError, match="512 tokens"):
        llm.generate("The dog. " * 1000, max_tokens=1)
    with pytest.raises(gristmill.BadRequestError, match="no chat template"):
        llm.chat("Hi")
    with pytest.raises(gristmill.BadRequestError):
        llm.embed([])
    with pytest.raises(gristmill.BadRequestError, match="vocabulary"):
        llm.logits([99_999])
    with pytest.raises(gristmill.BadRequestError):
        llm.detokenize([99_999])
    with LLM("builtin", ctx=512, parallel=1, queue=0, threads=1) as small, small.stream_text("The", **ENDLESS) as stream:
        next(stream)
        with pytest.raises(gristmill.BusyError):
            small.generate("The", max_tokens=1)


def test_each_model_has_its_own_offline(tmp_path):
    program = run(
        """
        from gristmill import LLM, ModelFileError
        for offline in (True, False):
            try:
                LLM("hf:org/repo:Q4_0", offline=offline)
            except ModelFileError as error:
                print("cannot reach" in str(error))
        """,
        # Nothing listens on the port.
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"},
    )
    assert program.communicate(timeout=60)[0] == "False\nTrue\n"


def test_a_stream_keeps_its_engine():
    pieces = list(LLM("builtin", ctx=64, threads=1).stream_text("The", max_tokens=8, ignore_eos=True))
    assert len(pieces) == 9


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_ends_the_wait_for_a_model(tmp_path):
    # A pipe that nobody writes, in place of a chat template: opening waits for it.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = run(
        f"""
        from gristmill import LLM
        print("ready", flush=True)
        try:
            LLM("builtin", chat_template={str(pipe)!r})
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        import os
        os._exit(0)
        """
    )
    assert program.stdout.readline() == "ready\n"
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=10)[0] == "interrupted\n"


def test_a_closed_engine_says_so():
    llm = LLM("builtin", ctx=4096, threads=1)
    stream = llm.stream_text("The", max_tokens=4000, ignore_eos=True)
    next(stream)
    since = time.monotonic()
    llm.close()
    llm.close()
    assert time.monotonic() - since < 5
    with pytest.raises(gristmill.ClosedError):
        list(stream)
    with pytest.raises(gristmill.ClosedError, match="open the model again"):
        llm.generate("The")


def test_an_interpreter_ends_while_requests_run():
    program = run(
        """
        from gristmill import LLM
        llm = LLM("builtin", ctx=4096, threads=1)
        streams = [llm.stream_text("The", max_tokens=4000, ignore_eos=True) for _ in range(3)]
        next(streams[0])
        """
    )
    _, error = program.communicate(timeout=30)
    assert program.returncode == 0 and error == ""


def test_import_opens_nothing_heavy():
    program = run("import sys, gristmill; print([m for m in ('numpy', 'httpx', 'openai', 'pydantic', 'asyncio') if m in sys.modules])")
    assert program.communicate(timeout=30)[0] == "[]\n"


def test_the_command_line_is_the_program():
    def gristmill_command(*arguments, **options):
        return subprocess.run(
            [sys.executable, "-m", "gristmill", *arguments], capture_output=True, text=True, timeout=60, **options
        )

    run = gristmill_command("run", "--temp", "0", "-n", "5", "Once upon a time")
    assert run.returncode == 0 and len(run.stdout) > 5
    assert gristmill_command("tokenize", "-", input="The dog").returncode in (0, 1)
    assert gristmill_command("--version").stdout.startswith(f"gristmill {gristmill.__version__}")
    wrong = gristmill_command("run", "--top-p", "7", "x")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ")
    missing = gristmill_command("inspect", "missing.gguf")
    assert missing.returncode == 1 and "missing.gguf" in missing.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_ends_the_command_line_as_it_ends_the_program():
    command = [sys.executable, "-m", "gristmill"]
    text = subprocess.Popen(
        [*command, "run", "--ctx", "8192", "-n", "8000", "--logit-bias", "0=-100", "Once"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert text.stdout.read(8)
    text.send_signal(signal.SIGINT)
    assert text.wait(20) == -signal.SIGINT
    server = subprocess.Popen([*command, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    while "ready" not in server.stderr.readline():
        assert server.poll() is None
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0
