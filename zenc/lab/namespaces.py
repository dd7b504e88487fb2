"""Network namespaces for a switch and its hosts, made without root where users may make user namespaces.

    unshare [--user] --net --pid ── the keeper, whose network is the switch's
                                    ├── a holder, in the network namespace of host 0
                                    └── ...

The namespaces have no names: each lives as long as a process is in it. The keeper is the first process of a process
namespace, and reads its standard input, whose other end this process holds. That ends with this process, killed or not;
then the keeper ends too, and the kernel ends all that still runs in its namespace, and removes the networks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from zenc.errors import Diagnostic, ZencError

PACKAGES = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
"""Programs that are called, and the Debian package that has each."""
PATHS = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
"""Programs of administrators need not be in the path of others."""
AS_ROOT_OF_ITS_OWN = ("--user", "--map-root-user")
_TELL = 'read -r pid rest < /proc/self/stat; echo "$pid"'
"""The number of a process as this one sees it, not as its own namespace does."""
_KEEPER = f"""
{_TELL}
for host in $(seq "$1"); do
    unshare --net -- sh -c '{_TELL}; exec sleep infinity' < /dev/null || echo "" &
done
exec cat > /dev/null
"""
FORBIDDEN = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
"""Settings of the kernel, under /proc/sys, and the value with which users may not make namespaces."""


class NetworkError(ZencError):
    """Hosts that this machine can't have, or whose links can't be as asked for: one diagnostic."""


class Namespaces:
    """A switch and ``size`` hosts, for as long as the ``with`` block runs or the process lives."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.user: tuple[str, ...] = ()
        """The way into the user namespace; empty without one."""

    def __enter__(self) -> Namespaces:
        errors = []
        for words in [()] * (not os.geteuid()) + [AS_ROOT_OF_ITS_OWN]:
            try:
                self._start(words)
                return self
            except NetworkError as error:
                errors.append(error.diagnostics[0].message)
        raise _lacking("; ".join(dict.fromkeys(errors)))

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def command(self, process: int, words: list[str], ends_with_them: bool = False) -> list[str]:
        """Return ``words``, run in the network of ``process``, and killed with the namespaces if that is asked for."""
        also = ("--pid",) if ends_with_them else ()
        return [program("nsenter"), "--target", str(process), *self.user, "--net", *also, "--", *words]

    def _start(self, user: tuple[str, ...]) -> None:
        """Set ``switch`` and ``hosts``, the numbers of processes in the namespaces."""
        words = [program("unshare"), *user, "--net", "--pid", "--fork", "--kill-child", "--"]
        with ExitStack() as held:
            said = held.enter_context(tempfile.TemporaryFile())
            keeper = subprocess.Popen(
                [*words, "sh", "-c", _KEEPER, "keeper", str(self.size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,  # an interrupt from the keyboard is for this process, which ends the keeper
            )
            held.callback(_end, keeper)
            assert keeper.stdout
            with keeper.stdout as lines:
                found = [lines.readline().strip() for _ in range(self.size + 1)]
            if not all(found):
                _end(keeper)
                said.seek(0)
                raise _lacking(said.read().decode(errors="replace").strip() or "the namespaces ended by themselves")
            self.switch, *self.hosts = (int(number) for number in found)
            self.user = ("--user", "--preserve-credentials") if user else ()
            self._held = held.pop_all()


def program(name: str) -> str:
    """Return the file of the program ``name``; raises NetworkError where it is missing."""
    if found := shutil.which(name, path=PATHS):
        return found
    raise _lacking(f"the program {name} (Debian: apt install {PACKAGES[name]})")


def why_forbidden() -> str:
    """Return the setting of the kernel that keeps users from making namespaces, in words; "" for no known one."""
    for name, value in FORBIDDEN.items():
        file = Path("/proc/sys", name)
        if os.geteuid() and file.exists() and file.read_text().strip() == value:
            return f"{name.replace('/', '.')} is {value} here: set it otherwise, or run this as root"
    return ""


def _lacking(message: str) -> NetworkError:
    return NetworkError(Diagnostic("lab-missing", message))


def _end(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin
    keeper.stdin.close()
    keeper.wait()
