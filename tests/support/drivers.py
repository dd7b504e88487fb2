"""Libraries of a few lines that pass for CUDA's driver and for NCCL, of any version."""

import subprocess
from pathlib import Path

from zenc.codegen.build.toolchain import toolchain

DRIVER = r"""
#include <cstring>
extern "C" {
int cuInit(unsigned) { return INIT; }
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuGetErrorName(int error, const char** name) { *name = error == 999 ? "CUDA_ERROR_UNKNOWN" : 0; return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal + 10; return 0; }
int cuDeviceGetName(char* name, int, int device) { strcpy(name, device == 11 ? "GPU one" : "GPU nought"); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = device == 11 ? (attribute == 75 ? 8 : 9) : (attribute == 75 ? 9 : 0);
    return attribute == 75 || attribute == 76 ? 0 : 1;
}
}
"""
NCCL = 'extern "C" int ncclGetVersion(int* version) { *version = VERSION; return 0; }\n'


def compiled(folder: Path, name: str, text: str, **macros: int) -> str:
    source, library = folder / f"{name}.cpp", folder / name
    library.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text)
    given = [f"-D{macro}={value}" for macro, value in macros.items()]
    command = [*toolchain().command, "-shared", "-fPIC", *given, f"-Wl,-soname,{library.name}", source, "-o", library]
    subprocess.run(command, check=True)
    return str(library)


def driver(folder: Path, version: int = 13000, init: int = 0) -> str:
    return compiled(folder, f"libcuda_{version}_{init}.so", DRIVER, VERSION=version, INIT=init)
