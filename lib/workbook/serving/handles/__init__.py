"""Hand a big tensor from one Python model to the next without copying it: a handle travels, the bytes stay.

A producer owns a few slots, each a file in shared memory; it computes into one and sends its *handle* (some 200 bytes)
through Triton in place of the tensor. The consumer maps the file and reads the bytes where they lie.

What can go wrong, and what keeps it from happening:

- *The data of another request.* Each lease writes a fresh random nonce into the slot, the handle carries the same one.
  A handle whose slot was given to somebody else is refused, never answered with what lies there now.
- *Overwritten while it is read.* A consumer holds a shared `flock` on the slot while it reads; a producer takes a slot
  only under the exclusive one, and without waiting.
- *A consumer that never comes* (killed, request cancelled): a lease runs out, then the producer takes the slot back. A
  consumer killed while it reads drops its lock with its life: the kernel does that.
- *A producer that dies.* The names carry its process id and start time: `clear_dead` removes the files of dead ones,
  and every producer calls it at its start. They also begin with the server's own prefix, so that the server's
  supervisor removes them at the server's end, or the next start does.
- *Memory without bound.* A producer has so many slots and no more; when all are out, the request fails with a message.

What remains: consumers must live on the same machine, under the same user, and trust each other; Triton sees only the
handle, so it can neither batch nor cache nor check the tensor. One handle is for one consumer.

Standard library and NumPy only, and imports of its own that are relative: the folder is copied beside a model's code
and runs in the server's environment.
"""

from .leases import Arena, Lease, Reader
from .names import DEFAULT_PREFIX, SHARED_MEMORY_DIR, clear_dead, server_prefix
from .slots import HandleError

__all__ = [
    "DEFAULT_PREFIX",
    "SHARED_MEMORY_DIR",
    "Arena",
    "HandleError",
    "Lease",
    "Reader",
    "clear_dead",
    "server_prefix",
]
