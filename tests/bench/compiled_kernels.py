"""Three hot kernels of the ledger in C and for numba, for ``bench_compiled.py`` to measure. The service has none of this.

All arrays are one-dimensional, contiguous ``uint64`` unless said otherwise. A kernel is called with arrays that the
caller has made, and returns a count; a negative one says that the input is not of the form that the kernel reads.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SOURCE = r"""
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>

/* MessagePack's unsigned integers of up to 32 bits; 0 where there is something else. */
static const uint8_t *number(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint8_t first = *at;
    if (first < 0x80) { *value = first; return at + 1; }
    if (first == 0xcc && end - at > 1) { *value = at[1]; return at + 2; }
    if (first == 0xcd && end - at > 2) { *value = (uint64_t)at[1] << 8 | at[2]; return at + 3; }
    if (first == 0xce && end - at > 4) {
        *value = (uint64_t)at[1] << 24 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 8 | at[4];
        return at + 5;
    }
    return 0;
}

static int64_t digest_tokens(const uint8_t *payload, const int64_t *begins, const int64_t *ends, int64_t spans,
                      const uint64_t *multipliers, int64_t block_size, uint64_t constant, uint64_t *own, int64_t blocks)
{
    int64_t block = 0, inside = 0;
    uint64_t sum = constant, value;
    for (int64_t span = 0; span < spans; span++) {
        const uint8_t *at = payload + begins[span], *end = payload + ends[span];
        while (at < end) {
            at = number(at, end, &value);
            if (!at || block == blocks) return -1;
            sum += multipliers[inside] * value;
            if (++inside == block_size) { own[block++] = sum; sum = constant; inside = 0; }
        }
    }
    return inside ? -1 : block;
}

static int64_t digest_column(const uint64_t *tokens, const uint64_t *multipliers, int64_t block_size, uint64_t constant,
                      uint64_t *own, int64_t blocks)
{
    for (int64_t block = 0; block < blocks; block++) {
        uint64_t sum = constant;
        for (int64_t inside = 0; inside < block_size; inside++) sum += multipliers[inside] * *tokens++;
        own[block] = sum;
    }
    return blocks;
}

static int64_t probe_filters(const uint64_t *words, const int64_t *offsets, int64_t filters, const uint64_t *keys,
                      int64_t count, const uint64_t *masks, int64_t *found)
{
    int64_t passing = 0;
    for (int64_t filter = 0; filter < filters; filter++) {
        const uint64_t *own = words + offsets[filter];
        uint64_t size = offsets[filter + 1] - offsets[filter];
        for (int64_t key = 0; key < count; key++) {
            uint64_t mask = masks[keys[key] >> 8 & 0x3fff];
            if ((own[(keys[key] >> 32) * size >> 32] & mask) == mask) found[passing++] = filter * count + key;
        }
    }
    return passing;
}

#define ARRAYS_MAX 5
/* Opens the buffers of a call's arrays; a whole number may be the last argument. */
static int opened(PyObject *const *given, Py_ssize_t count, Py_ssize_t wanted, Py_buffer *views)
{
    if (count < wanted) { PyErr_SetString(PyExc_TypeError, "too few arguments"); return 0; }
    for (Py_ssize_t i = 0; i < wanted; i++)
        if (PyObject_GetBuffer(given[i], &views[i], PyBUF_SIMPLE)) {
            while (i--) PyBuffer_Release(&views[i]);
            return 0;
        }
    return 1;
}

static PyObject *closed(Py_buffer *views, Py_ssize_t count, int64_t result)
{
    for (Py_ssize_t i = 0; i < count; i++) PyBuffer_Release(&views[i]);
    return PyLong_FromLongLong(result);
}

static PyObject *call_tokens(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Py_buffer v[ARRAYS_MAX];
    if (!opened(given, count, 5, v)) return 0;
    return closed(v, 5, digest_tokens(v[0].buf, v[1].buf, v[2].buf, v[1].len / 8, v[3].buf, v[3].len / 8,
                                      PyLong_AsUnsignedLongLongMask(given[5]), v[4].buf, v[4].len / 8));
}

static PyObject *call_column(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Py_buffer v[ARRAYS_MAX];
    if (!opened(given, count, 3, v)) return 0;
    return closed(v, 3, digest_column(v[0].buf, v[1].buf, v[1].len / 8, PyLong_AsUnsignedLongLongMask(given[3]),
                                      v[2].buf, v[2].len / 8));
}

static PyObject *call_filters(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Py_buffer v[ARRAYS_MAX];
    if (!opened(given, count, 5, v)) return 0;
    return closed(v, 5, probe_filters(v[0].buf, v[1].buf, v[1].len / 8 - 1, v[2].buf, v[2].len / 8, v[3].buf, v[4].buf));
}

static PyMethodDef methods[] = {
    {"digest_tokens", (PyCFunction)(void *)call_tokens, METH_FASTCALL, 0},
    {"digest_column", (PyCFunction)(void *)call_column, METH_FASTCALL, 0},
    {"probe_filters", (PyCFunction)(void *)call_filters, METH_FASTCALL, 0},
    {0, 0, 0, 0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kernels", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_kernels(void) { return PyModule_Create(&definition); }
"""


class Kernels(Protocol):
    """One way to run the three kernels."""

    name: str
    prepared: str
    """How it was made, and what that took."""

    def digest_tokens(
        self, payload: Bytes, begins: Rows, ends: Rows, multipliers: Numbers, constant: int, own: Numbers
    ) -> int:
        """Read the token ids in ``payload[begin:end]`` of each span and write each block's digest to ``own``."""

    def digest_column(self, tokens: Numbers, multipliers: Numbers, constant: int, own: Numbers) -> int:
        """Write the digest of each block of token ids to ``own``."""

    def probe_filters(self, words: Numbers, offsets: Rows, keys: Numbers, masks: Numbers, found: Rows) -> int:
        """Write ``filter * keys.size + key`` of each pair that passes to ``found``, which has room for all pairs.

        The words of filter i are ``words[offsets[i]:offsets[i + 1]]``; ``masks`` has 2^14 masks.
        """


class Unavailable(Exception):
    """Why one way cannot be measured here."""


class InC:
    """The kernels in C, compiled here into an extension module of the stable ABI."""

    name = "C"

    def __init__(self, directory: Path) -> None:
        compiler, headers = shutil.which("cc"), Path(sysconfig.get_path("include"))
        if compiler is None:
            raise Unavailable("no C compiler on the PATH")
        if not (headers / "Python.h").is_file():
            raise Unavailable(f"no {headers / 'Python.h'}: install Python's headers")
        source, built = directory / "kernels.c", directory / "kernels.abi3.so"
        source.write_text(SOURCE, encoding="ascii")
        begin = time.perf_counter()
        command = [compiler, "-O3", "-shared", "-fPIC", f"-I{headers}", "-o", str(built), str(source)]
        subprocess.run(command, check=True)
        self.prepared = f"C: cc -O3 took {time.perf_counter() - begin:.2f} s, {built.stat().st_size:,} bytes"
        spec = importlib.util.spec_from_file_location("kernels", built)
        assert spec is not None
        assert spec.loader is not None
        self._module: Any = importlib.util.module_from_spec(spec)

    def digest_tokens(
        self, payload: Bytes, begins: Rows, ends: Rows, multipliers: Numbers, constant: int, own: Numbers
    ) -> int:
        """As ``Kernels`` says."""
        count: int = self._module.digest_tokens(payload, begins, ends, multipliers, own, constant)
        return count

    def digest_column(self, tokens: Numbers, multipliers: Numbers, constant: int, own: Numbers) -> int:
        """As ``Kernels`` says."""
        count: int = self._module.digest_column(tokens, multipliers, own, constant)
        return count

    def probe_filters(self, words: Numbers, offsets: Rows, keys: Numbers, masks: Numbers, found: Rows) -> int:
        """As ``Kernels`` says."""
        count: int = self._module.probe_filters(words, offsets, keys, masks, found)
        return count


def _digest_tokens(
    payload: Bytes, begins: Rows, ends: Rows, multipliers: Numbers, constant: np.uint64, own: Numbers
) -> int:
    block = inside = 0
    total = constant
    for span in range(begins.size):
        at, end = begins[span], ends[span]
        while at < end:
            first = payload[at]
            width = 0 if first < 0x80 else 1 if first == 0xCC else 2 if first == 0xCD else 4 if first == 0xCE else 9
            if at + width >= end or block == own.size:
                return -1
            value = np.uint64(first if width == 0 else 0)
            for place in range(width):
                value = value << np.uint64(8) | np.uint64(payload[at + 1 + place])
            at += 1 + width
            total += multipliers[inside] * value
            inside += 1
            if inside == multipliers.size:
                own[block] = total
                block += 1
                inside = 0
                total = constant
    return -1 if inside else block


def _digest_column(tokens: Numbers, multipliers: Numbers, constant: np.uint64, own: Numbers) -> int:
    at = 0
    for block in range(own.size):
        total = constant
        for inside in range(multipliers.size):
            total += multipliers[inside] * tokens[at]
            at += 1
        own[block] = total
    return own.size


def _probe_filters(words: Numbers, offsets: Rows, keys: Numbers, masks: Numbers, found: Rows) -> int:
    passing = 0
    for number in range(offsets.size - 1):
        begin = offsets[number]
        size = np.uint64(offsets[number + 1] - begin)
        for key in range(keys.size):
            mask = masks[keys[key] >> np.uint64(8) & np.uint64(0x3FFF)]
            word = words[begin + np.int64((keys[key] >> np.uint64(32)) * size >> np.uint64(32))]
            if word & mask == mask:
                found[passing] = number * keys.size + key
                passing += 1
    return passing


class InNumba:
    """The kernels compiled by numba at their first call, which is made here."""

    name = "numba"

    def __init__(self) -> None:
        try:
            numba: Any = importlib.import_module("numba")
        except ImportError:
            raise Unavailable("not installed: pip install numba") from None
        whole, row, byte = numba.uint64[::1], numba.int64[::1], numba.types.Array(numba.uint8, 1, "C", readonly=True)
        # What numpy reads out of bytes cannot be written to, which numba takes for another type.
        kept = numba.types.Array(numba.uint64, 1, "C", readonly=True)
        one = numba.uint64
        begin = time.perf_counter()
        self._tokens: Callable[..., int] = numba.njit(numba.int64(byte, row, row, kept, one, whole))(_digest_tokens)
        self._column: Callable[..., int] = numba.njit(numba.int64(kept, kept, one, whole))(_digest_column)
        self._filters: Callable[..., int] = numba.njit(numba.int64(whole, row, whole, kept, row))(_probe_filters)
        self.prepared = f"numba {numba.__version__}: compiling the three took {time.perf_counter() - begin:.2f} s"

    def digest_tokens(
        self, payload: Bytes, begins: Rows, ends: Rows, multipliers: Numbers, constant: int, own: Numbers
    ) -> int:
        """As ``Kernels`` says."""
        return self._tokens(payload, begins, ends, multipliers, np.uint64(constant), own)

    def digest_column(self, tokens: Numbers, multipliers: Numbers, constant: int, own: Numbers) -> int:
        """As ``Kernels`` says."""
        return self._column(tokens, multipliers, np.uint64(constant), own)

    def probe_filters(self, words: Numbers, offsets: Rows, keys: Numbers, masks: Numbers, found: Rows) -> int:
        """As ``Kernels`` says."""
        return self._filters(words, offsets, keys, masks, found)
