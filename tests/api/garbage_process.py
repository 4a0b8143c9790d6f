"""``blockyard serve`` without a garbage collector; at each SIGUSR1 it says what that would have found."""

import gc
import signal
from collections import Counter
from types import FrameType

from blockyard.server import collector
from blockyard.server.command_line import main


def tell(_signum: int, _frame: FrameType | None) -> None:
    gc.unfreeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.collect()  # else it would be found again
    print(dict(found), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    collector.COLLECT_AFTER = 0  # never by itself
    main()
