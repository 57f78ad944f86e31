"""The filter's programs, run here: every denied call on both machines, whatever this machine is."""

import errno
import re
import struct
from pathlib import Path

import pytest

from softdlm.errors import SandboxError
from softdlm.sandbox import seccomp
from softdlm.sandbox.seccomp import DENIED, GUARDED, LAST_CALL, MACHINES, OF_THE_USER, compiled, filter_for, numbers

ALLOWED, EPERM, ENOSYS = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEWER_THAN_HEADERS = {"memfd_secret", "process_mrelease", "set_mempolicy_home_node", "statmount", "listmount"}
NEWER_THAN_HEADERS |= {"fchmodat2"}
both_machines = pytest.mark.parametrize("machine", MACHINES)


def answer(machine: str, number: int, *arguments: int, isolated: bool = True, architecture: int | None = None) -> int:
    """What the kernel would answer: the program is run on the data of one call."""
    word = MACHINES[machine][1] if architecture is None else architecture
    data = struct.pack("<IIQ6Q", number, word, 0, *(value % 2**64 for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]))
    steps = [*struct.iter_unpack("=HBBI", compiled(machine, isolated))]
    held = place = 0
    while True:
        code, then, otherwise, value = steps[place]
        place += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        else:
            holds = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[code]
            place += then if holds else otherwise


@both_machines
def test_every_call_of_the_table_is_denied_and_no_other(machine: str) -> None:
    denied, guarded = numbers(DENIED, machine), numbers(GUARDED, machine)
    assert {name: answer(machine, number) for name, number in denied.items()} == dict.fromkeys(denied, EPERM)
    rest = set(range(LAST_CALL + 1)) - {*denied.values(), *guarded.values()}
    assert {answer(machine, number) for number in rest} == {ALLOWED}
    limited = {*numbers(OF_THE_USER, machine).values()} - {guarded["socket"]}
    assert {number for number in rest if answer(machine, number, isolated=False) != ALLOWED} == limited


@both_machines
def test_another_architecture_x32_and_unknown_calls_are_denied(machine: str) -> None:
    for other in (0x40000003, 0x40000028, *(word for name, (_, word) in MACHINES.items() if name != machine)):
        assert {answer(machine, number, architecture=other) for number in range(LAST_CALL + 1)} == {EPERM}
    assert {answer(machine, 0x40000000 + number) for number in range(LAST_CALL + 1)} == {EPERM}
    assert {answer(machine, number) for number in range(LAST_CALL + 1, LAST_CALL + 99)} == {ENOSYS}


@both_machines
def test_what_depends_on_arguments(machine: str) -> None:
    number = numbers(GUARDED, machine)
    threads, vfork = 0x3D0F00, 0x4111
    assert [answer(machine, number["clone"], flags) for flags in (threads, vfork, 17)] == [ALLOWED] * 3
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(machine, number["clone"], flag | 17) == EPERM
    assert answer(machine, number["clone3"], 0) == ENOSYS
    families = {family: answer(machine, number["socket"], family) for family in range(50)}
    assert [family for family, said in families.items() if said == ALLOWED] == [1]
    assert {answer(machine, number["socket"], family, isolated=False) for family in range(50)} == {EPERM}
    assert answer(machine, number["socketpair"], 1, isolated=False) == ALLOWED
    assert answer(machine, number["keyctl"], 1, 0) == ALLOWED
    assert {answer(machine, number["keyctl"], 1, name) for name in (1, 2**32, 2**63)} == {EPERM}
    assert {answer(machine, number["keyctl"], command) for command in range(40) if command != 1} == {EPERM}
    assert (answer(machine, number["prctl"], 1), answer(machine, number["prctl"], 15)) == (EPERM, ALLOWED)
    assert (answer(machine, number["prlimit64"], 1), answer(machine, number["prlimit64"], 0)) == (EPERM, ALLOWED)


@both_machines
def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not here: install linux-libc-dev")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    known = {name: int(number) for name, number in found}
    ours = numbers(DENIED + OF_THE_USER + GUARDED, machine)
    assert set(ours) - set(known) <= NEWER_THAN_HEADERS
    assert {name: known.get(name, number) for name, number in ours.items()} == ours


def test_a_machine_without_a_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match="riscv64: use Linux on x86_64 or aarch64"):
        filter_for(True)
