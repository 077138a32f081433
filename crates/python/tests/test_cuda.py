"""CUDA without a GPU: a stub of the driver stands in for it, and NVRTC is missing."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import gristmill

STUB = pathlib.Path(__file__).parents[2] / "cli/tests/cli/stub/cuda.c"
OPEN = "import gristmill; gristmill.LLM('builtin', device='cuda')"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A folder with the stub."""
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so", STUB], check=True)
    return folder


def fails(words, libraries, home):
    """The last line of standard error."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(pathlib.Path(gristmill.__file__).parents[1]),
        "LD_LIBRARY_PATH": str(libraries),
        "HOME": str(home),
    }
    ended = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    return ended.stderr.strip().splitlines()[-1]


def has_nvrtc():
    folders = [pathlib.Path(folder) for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    return any((folder / "nvidia").is_dir() for folder in folders) or any(
        pathlib.Path(toolkit).exists() for toolkit in ("/usr/local/cuda", "/opt/cuda")
    )


def has_driver():
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_nvrtc(), reason="NVRTC is here")
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_without_nvrtc_the_error_names_the_extra_of_the_package(driver, tmp_path):
    error = fails(["-c", OPEN], driver, tmp_path)
    assert error.startswith("gristmill.errors.DeviceError: ") and 'pip install "gristmill[cuda]"' in error
    error = fails(["-m", "gristmill", "run", "--device", "cuda", "hello"], driver, tmp_path)
    assert error.startswith("error: ") and 'pip install "gristmill[cuda]"' in error


@pytest.mark.skipif(has_driver(), reason="a driver is here")
def test_without_a_driver_the_error_says_so(tmp_path):
    error = fails(["-c", OPEN], tmp_path, tmp_path)
    assert error.startswith("gristmill.errors.DeviceError: ") and "driver" in error
