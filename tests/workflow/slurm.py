"""A real SLURM of one node with two fake GPUs, started and stopped on the machine at hand, for tests.

``python tests/workflow/slurm.py start [--accounting]`` brings it up, ``stop`` takes it down. It needs root, Debian's
packages slurm-wlm and munge (with accounting also slurmdbd and mariadb-server; ``install`` installs all four), and a
machine that has no SLURM of its own: an /etc/slurm/slurm.conf that this script did not write is never touched.
Everything else it writes lies in one folder. The GPUs are character devices without a driver, so SLURM hands out
CUDA_VISIBLE_DEVICES as on a real node.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path("/tmp/pne-slurm")
ETC = Path("/etc/slurm")
MARK = "# written by tests/workflow/slurm.py"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")
PACKAGES = ("slurm-wlm", "munge", "slurmdbd", "mariadb-server")
ACCOUNT = "segmentation"
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"

SLURM_CONF = """{mark}
ClusterName=pne
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=5
GresTypes=gpu
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
MinJobAge=300
KillWait={kill_wait}
JobAcctGatherType=jobacct_gather/none
NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=20000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes={node} Default=YES MaxTime=1-00:00:00 State=UP
{accounting}
"""
NO_ACCOUNTING_CONF = "AccountingStorageType=accounting_storage/none"
ACCOUNTING_CONF = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=26819
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu"""
SLURMDBD_CONF = """{mark}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort=26819
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""


class SlurmError(RuntimeError):
    """SLURM could not be started here; the message says what is missing or what its log says."""


def missing(accounting: bool = False) -> str | None:
    """Say why a SLURM cannot be started on this machine, or None if it can be tried."""
    if os.geteuid() != 0:
        return "only root can start SLURM's daemons"
    path = f"{os.environ['PATH']}:{SBIN}"
    absent = [p for p in PROGRAMS + ACCOUNTING_PROGRAMS * accounting if shutil.which(p, path=path) is None]
    if absent:
        packages = "slurm-wlm munge" + " slurmdbd mariadb-server" * accounting
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends {packages}"
    conf = ETC / "slurm.conf"
    if conf.exists() and MARK not in conf.read_text():
        return f"{conf} belongs to another SLURM"
    return None


def install() -> None:
    """Install what is missing, on Debian and its kin, as root; elsewhere do nothing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    path = f"{os.environ['PATH']}:{SBIN}"
    if all(shutil.which(program, path=path) for program in PROGRAMS + ACCOUNTING_PROGRAMS):
        return
    environment = _environment(DEBIAN_FRONTEND="noninteractive")
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        subprocess.run(["apt-get", *command], env=environment, stdout=subprocess.DEVNULL, check=True)


def start(accounting: bool = False, folder: Path = FOLDER, cpus: int = 4, kill_wait: int = 20) -> None:
    """Start the daemons and wait until the node is idle.

    Parameters
    ----------
    accounting : bool
        Whether slurmdbd (over MariaDB) keeps the books, with the account ``segmentation``; otherwise none does.
    folder : Path
        Everything but /etc/slurm lies here; removed and made anew.
    cpus : int
        Processors that the node claims to have, whatever it has: enough for the GPUs to be what is scarce.
    kill_wait : int
        Seconds between SIGTERM and SIGKILL of a job that reached its time limit.

    Raises
    ------
    SlurmError
        If a program is missing or a daemon does not come up; the end of its log is part of the message.
    """
    if reason := missing(accounting):
        raise SlurmError(reason)
    stop(folder)
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    node = socket.gethostname().split(".")[0]
    for index in range(2):
        # 1:3 is /dev/null's number: a device that SLURM accepts, and that nobody can harm.
        os.mknod(folder / f"gpu{index}", 0o20666, os.makedev(1, 3))
    ETC.mkdir(exist_ok=True)
    values = {"mark": MARK, "node": node, "folder": folder, "kill_wait": kill_wait, "cpus": cpus}
    values["accounting"] = ACCOUNTING_CONF.format(folder=folder) if accounting else NO_ACCOUNTING_CONF
    _write(ETC / "slurm.conf", SLURM_CONF.format(**values))
    _write(ETC / "gres.conf", f"{MARK}\nAutoDetect=off\nNodeName={node} Name=gpu File={folder}/gpu[0-1]\n")
    _write(ETC / "cgroup.conf", f"{MARK}\nCgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munged = ["munged", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    for option in ("pid", "log", "seed"):
        munged.append(f"--{option}-file={folder}/munged.{option}")
    _daemon(munged)
    if accounting:
        _start_accounting(folder)
    _daemon(["slurmctld"], log=folder / "slurmctld.log")
    _wait(lambda: "up" in ask("scontrol", "ping").lower(), "slurmctld answers", folder / "slurmctld.log")
    _daemon(["slurmd", "-N", node], log=folder / "slurmd.log")
    _wait(lambda: node_state() == "idle", "the node is idle", folder / "slurmd.log")


def _start_accounting(folder: Path) -> None:
    data, database_socket = folder / "database", folder / "database.socket"
    owner = "--user=root"
    _run(["mariadb-install-db", owner, f"--datadir={data}", "--auth-root-authentication-method=socket"])
    log = (folder / "mariadbd.log").open("w")
    command = ["mariadbd", owner, f"--datadir={data}", f"--socket={database_socket}", "--skip-networking"]
    process = subprocess.Popen([*command, f"--pid-file={folder}/mariadbd.pid"], env=_environment(),
                               stdout=log, stderr=log, start_new_session=True)  # fmt: skip
    (folder / "mariadbd.pid").write_text(str(process.pid))
    _wait(lambda: _succeeds("mariadb-admin", f"--socket={database_socket}", "ping"), "MariaDB answers",
          folder / "mariadbd.log")  # fmt: skip
    _write(ETC / "slurmdbd.conf", SLURMDBD_CONF.format(mark=MARK, folder=folder), mode=0o600)
    # slurmdbd looks for MariaDB's default socket, unless the client's configuration names another one.
    (folder / "my.cnf").write_text(f"[client]\nsocket={database_socket}\n")
    _daemon(["slurmdbd"], log=folder / "slurmdbd.log", MYSQL_HOME=str(folder), MYSQL_UNIX_PORT=str(database_socket))
    _wait(lambda: _succeeds("sacctmgr", "-n", "list", "cluster"), "slurmdbd answers", folder / "slurmdbd.log")
    _run(["sacctmgr", "-i", "add", "cluster", "pne"])
    _run(["sacctmgr", "-i", "add", "account", ACCOUNT, "Description=tests", "Organization=pne"])
    _run(["sacctmgr", "-i", "add", "user", "root", f"Account={ACCOUNT}"], accept=(0, 1))


def stop(folder: Path = FOLDER) -> None:
    """Stop what `start` started, each daemon by its own process id, and remove its files."""
    if folder.exists():
        if (folder / "slurmctld.pid").exists():
            subprocess.run(["scancel", "--user=root"], env=_environment(), capture_output=True, timeout=30, check=False)
        for name in ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
            _end(folder / f"{name}.pid", name)
        shutil.rmtree(folder)
    for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"):
        conf = ETC / name
        if conf.exists() and MARK in conf.read_text():
            conf.unlink()


def node_state() -> str:
    """State of the node as sinfo prints it: idle, mixed, drained, ..."""
    return ask("sinfo", "--noheader", "--format=%T").strip().rstrip("*")


def _end(pid_file: Path, name: str) -> None:
    try:
        pid = int(pid_file.read_text())
        running = Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ValueError):
        return
    if running != name:  # the number has been given to another process since
        return
    os.kill(pid, signal.SIGTERM)
    for _ in range(150):
        if not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] == "Z":
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ['PATH']}:{SBIN}", **more}


def _run(command: Sequence[str], accept: Sequence[int] = (0,)) -> str:
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=120, check=False)
    if done.returncode not in accept:
        raise SlurmError(f"{' '.join(command)} failed with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _daemon(command: Sequence[str], log: Path | None = None, **environment: str) -> None:
    with Path(os.devnull).open("r+b") as null:
        done = subprocess.run(command, env=_environment(**environment), stdin=null, stdout=null, stderr=subprocess.PIPE,
                              timeout=60, check=False)  # fmt: skip
    if done.returncode:
        raise SlurmError(f"{command[0]} failed: {done.stderr.decode()}{_tail(log)}")


def ask(*command: str) -> str:
    """Return what one of SLURM's commands prints."""
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=30, check=False)
    return done.stdout


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, env=_environment(), capture_output=True, timeout=30, check=False).returncode == 0


def _wait(condition: Callable[[], bool], what: str, log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SlurmError(f"after {seconds:.0f} s it is not so that {what}{_tail(log)}")
        time.sleep(0.3)


def _tail(log: Path | None) -> str:
    if log is None or not log.exists():
        return ""
    return f"; end of {log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def main(argv: Sequence[str] | None = None) -> int:
    """Install, start or stop the test SLURM from the command line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("action", choices=["install", "start", "stop"])
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd over MariaDB")
    arguments = parser.parse_args(argv)
    try:
        {"install": install, "start": lambda: start(arguments.accounting), "stop": stop}[arguments.action]()
    except SlurmError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
