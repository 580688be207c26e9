"""Compiles and launches the kernel that carries out commits on an NVIDIA GPU.

The source comes from the library (pl_loop_kernel) and is compiled by NVRTC, which PyTorch brings
along, and launched by the CUDA driver, both through ctypes."""

from __future__ import annotations

import ctypes as c
import glob
import os
import sys
from typing import Any, Dict, List, Tuple

from .errors import MissingError, RunError

__all__ = ["Kernel"]

OPTIONS = (
    "--std=c++17",
    "--device-as-default-execution-space",
    "--fmad=false",  # no fused multiply-adds, and small numbers flushed to zero: as on the CPU
    "--ftz=true",
    "--prec-div=true",
    "--prec-sqrt=true",
)


def _nvrtc_paths() -> List[str]:
    """Where NVRTC may be: in the packages that PyTorch depends on, or where the linker looks."""
    found: List[str] = []
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "torch")) or os.path.isdir(
            os.path.join(folder, "nvidia")
        ):
            found += glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so*"))
            found += glob.glob(os.path.join(folder, "torch", "lib", "libnvrtc*.so*"))
    found = [f for f in found if "builtins" not in f and ".alt." not in f]
    found += sorted(glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*"), reverse=True)
    return found + ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]


def _load(paths: List[str], what: str) -> c.CDLL:
    for path in paths:
        try:
            return c.CDLL(path)
        except OSError:
            continue
    raise MissingError(f"{what} is not installed; keep the vectors on the host: vectors='host'")


class _Nvrtc:
    def __init__(self) -> None:
        self.lib = _load(_nvrtc_paths(), "NVRTC, the run-time compiler of CUDA,")

    def _check(self, status: int, program: Any = None) -> None:
        if status == 0:
            return
        self.lib.nvrtcGetErrorString.restype = c.c_char_p
        text = self.lib.nvrtcGetErrorString(status).decode()
        if program is not None:
            size = c.c_size_t()
            self.lib.nvrtcGetProgramLogSize(program, c.byref(size))
            log = c.create_string_buffer(size.value + 1)
            self.lib.nvrtcGetProgramLog(program, log)
            text += "\n" + log.value.decode("utf-8", "replace")
        raise RunError(f"the kernel cannot be compiled: {text}")

    def compile(self, source: str, capability: Tuple[int, int]) -> bytes:
        """The kernel as a binary for a GPU of this capability."""
        program = c.c_void_p()
        self._check(
            self.lib.nvrtcCreateProgram(
                c.byref(program), source.encode(), b"paceline.cu", 0, None, None
            )
        )
        try:
            options = OPTIONS + (f"--gpu-architecture=sm_{capability[0]}{capability[1]}",)
            array = (c.c_char_p * len(options))(*(o.encode() for o in options))
            self._check(self.lib.nvrtcCompileProgram(program, len(options), array), program)
            size = c.c_size_t()
            self._check(self.lib.nvrtcGetCUBINSize(program, c.byref(size)))
            binary = c.create_string_buffer(size.value)
            self._check(self.lib.nvrtcGetCUBIN(program, binary))
            return binary.raw
        finally:
            self.lib.nvrtcDestroyProgram(c.byref(program))


class Kernel:
    """The compiled kernel on the current device of PyTorch."""

    THREADS = 256
    _compiled: Dict[Tuple[str, Tuple[int, int]], bytes] = {}

    def __init__(self, source: str, dim: int, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        properties = torch.cuda.get_device_properties(device)
        key = (source, (properties.major, properties.minor))
        if key not in self._compiled:
            self._compiled[key] = _Nvrtc().compile(*key)
        self._driver = _load(["libcuda.so.1"], "the CUDA driver")
        torch.zeros(1, device=device)  # makes the context of the device current
        self._module, self._function = c.c_void_p(), c.c_void_p()
        self._check(self._driver.cuModuleLoadData(c.byref(self._module), self._compiled[key]))
        self._check(
            self._driver.cuModuleGetFunction(c.byref(self._function), self._module, b"pl_kernel")
        )
        most = 16 * properties.multi_processor_count
        self._blocks = max(1, min(most, (dim + self.THREADS - 1) // self.THREADS))
        self._driver.cuLaunchKernel.argtypes = [c.c_void_p] + [c.c_uint] * 7 + [c.c_void_p] * 3

    def _check(self, status: int) -> None:
        if status == 0:
            return
        text = c.c_char_p()
        self._driver.cuGetErrorString(status, c.byref(text))
        raise RunError(f"the CUDA driver failed: {(text.value or b'unknown error').decode()}")

    def __call__(self, argument: int, size: int) -> None:
        """Launches the kernel on the current stream; the argument is copied."""
        stream = self._torch.cuda.current_stream(self._device).cuda_stream
        params = (c.c_void_p * 1)(argument)
        self._check(
            self._driver.cuLaunchKernel(
                self._function, self._blocks, 1, 1, self.THREADS, 1, 1, 0, stream, params, None
            )
        )
