"""Where a store lies: a file system that is shared by machines cannot keep it whole.

SQLite's log needs memory that all its users share, which two machines have not; what they write
at the same time damages the file.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

from riemem.errors import StoreError, StoreWarning

__all__ = ["ALLOW", "file_system_of", "require_local"]

#: With any value but the empty one, a store on a network file system is warned of, not refused.
ALLOW = "RIEMEM_ALLOW_NETWORK_STORE"

_NETWORK = {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "coda", "ncpfs", "lustre"}
_NETWORK |= {"ceph", "glusterfs", "beegfs", "gpfs", "davfs", "orangefs", "ocfs2", "gfs2"}
_NETWORK |= {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.davfs2"}
# Folders that a virtual machine or a container shares with its host: whole as long as only one of
# the two opens the store.
_SHARED = {"9p", "drvfs", "vboxsf", "fuse.vmhgfs-fuse", "prl_fs"}

_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system_of(path: str, mounts: str = _MOUNTS) -> str | None:
    """Return the type of the file system that holds a path, or None where the system hides it.

    Parameters
    ----------
    path : str
        Need not exist.
    mounts : str
        The table of mounts, as Linux writes it.

    Examples
    --------
    >>> file_system_of("/", mounts="/nowhere") is None
    True
    """
    try:
        lines = Path(mounts).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    best, found = -1, None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if len(fields) < 5 or not kind:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = point == "/" or real == point or real.startswith(f"{point}/")
        if inside and len(point) >= best:  # of two on one place the later one is seen
            best, found = len(point), kind
    return found


def require_local(path: str) -> None:
    """Refuse a store that is to be written on a network file system; warn of a shared folder.

    Raises
    ------
    StoreError
        Naming the file system and the way out.
    """
    kind = file_system_of(path)
    if kind in _NETWORK and not os.environ.get(ALLOW):
        raise StoreError(
            f"{path}: lies on a network file system ({kind}), where two machines that write damage "
            "the store; it was left untouched. Give a path on a local disk (--store or "
            f"RIEMEM_STORE), open it with readonly=True, or set {ALLOW}=1 if only this machine "
            "uses it."
        )
    if kind in _NETWORK or kind in _SHARED:
        warnings.warn(
            f"{path}: lies on a file system that several machines may share ({kind}); the store "
            "stays whole only while one of them uses it. Better is a path on a local disk.",
            StoreWarning,
            stacklevel=2,
        )
