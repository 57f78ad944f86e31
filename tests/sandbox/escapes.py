"""Hostile programs that only a sandbox contains. Their texts are formats: {host_file} and the like must stay out.

The limited process does not claim to contain these. One that passes got what it wanted.
"""

from tests.sandbox.hostile import Hostile

DENIED = "Permission denied|Operation not permitted|Read-only file system"
ABSENT = "No such file or directory"

ESCAPES = [
    Hostile(
        "a fork bomb that leaves its session",
        "timeout",
        "",
        """
import os
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
""",
    ),
    Hostile(
        "sixty processes",
        "failed",
        "Resource temporarily unavailable",
        "import os, time\nfor n in range(60):\n    if os.fork() == 0: time.sleep(60)",
    ),
    Hostile(
        "killing everybody",
        "failed",
        "all are still there",
        """
import os
for pid in (os.getppid(), 1, -1):
    try: os.kill(pid, 9)
    except OSError: pass
assert os.getppid() != 1 or not os.path.exists('/proc/1'), 'all are still there'
""",
    ),
    Hostile(
        "network, TCP to this machine",
        "failed",
        DENIED,
        "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)",
    ),
    Hostile(
        "network, an abstract socket",
        "failed",
        "refused",
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0s{secret}')",
    ),
    Hostile(
        "network, out",
        "failed",
        DENIED,
        "import socket\nsocket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 53))",
    ),
    Hostile(
        "the environment",
        "failed",
        "secret not found",
        """
import os
seen = ''.join(os.environ.values())
for pid in os.listdir('/proc'):
    for name in ('environ', 'cmdline'):
        try: seen += open(f'/proc/{{pid}}/{{name}}', errors='replace').read()
        except OSError: pass
assert 'sandbox' in seen or 'PYTHON' in seen, 'the test does not look where it should'
assert '{secret}' in seen, 'secret not found'
""",
    ),
    Hostile("the home folder", "failed", ABSENT, "open('{home_file}').read()"),
    Hostile("the host's temporary folder", "failed", ABSENT, "open('{host_file}').read()"),
    Hostile("the host's users", "failed", ABSENT, "open('/etc/passwd').read()"),
    Hostile(
        "the roots of other processes",
        "failed",
        "AssertionError",
        """
import os
ways = [f'/proc/{{pid}}/{{way}}' for pid in os.listdir('/proc') for way in ('root', 'cwd')]
assert any(os.path.exists(way + '{host_file}') for way in ways)
""",
    ),
    Hostile(
        "a link out of the scratch folder, to read",
        "failed",
        ABSENT,
        "import os\nos.symlink('{host_file}', 'link')\nopen('link').read()",
    ),
    Hostile(
        "a link out of the scratch folder, to write",
        "failed",
        ABSENT,
        "import os\nos.symlink('{host_folder}', 'link')\nopen('link/new', 'w')",
    ),
    Hostile("a way up from the scratch folder", "failed", ABSENT, "open('../../../../..{host_file}').read()"),
    Hostile("writing to /", "failed", DENIED, "open('/new', 'w')"),
    Hostile("writing to /dev", "failed", DENIED, "open('/dev/new', 'w')"),
    Hostile("writing to the library", "failed", DENIED, "import os\nopen(os.__file__ + '.new', 'w')"),
    Hostile("writing to the kernel's settings", "failed", DENIED, "open('/proc/sys/vm/swappiness', 'r+').write('60')"),
    Hostile(
        "filling the scratch folder",
        "failed",
        "No space left",
        "for n in range(99):\n    with open(f'{{n}}', 'wb') as file: file.write(bytes(10**7))",
    ),
    Hostile(
        "filling shared memory",
        "failed",
        "No space left",
        "for n in range(99):\n    with open(f'/dev/shm/{{n}}', 'wb') as file: file.write(bytes(10**7))",
    ),
    Hostile(
        "files without end in the scratch folder",
        "failed",
        "No space left.*'409[0-9]'$",
        "for n in range(5000): open(f'{{n}}', 'w').close()",
    ),
    Hostile(
        "files without end in shared memory",
        "failed",
        "No space left.*'/dev/shm/409[0-9]'$",
        "for n in range(5000): open(f'/dev/shm/{{n}}', 'w').close()",
    ),
    Hostile("becoming root", "failed", f"{DENIED}|Invalid argument", "import os\nos.setuid(0)"),
    Hostile(
        "a user namespace of its own",
        "failed",
        "errno 1$",
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.unshare(0x10000000) == 0, f'errno {{ctypes.get_errno()}}'",
    ),
    Hostile(
        "mounting the root writable",
        "failed",
        "errno 1$",
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.mount(b'none', b'/', None, 32 | 4096, None) == 0, f'errno {{ctypes.get_errno()}}'",
    ),
    Hostile("another root folder", "failed", DENIED, "import os\nos.chroot('/tmp')"),
    Hostile(
        "a device of its own",
        "failed",
        DENIED,
        "import os, stat\nos.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))",
    ),
]
