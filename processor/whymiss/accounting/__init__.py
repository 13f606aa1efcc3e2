"""Accounting: whose store is whose. Of every fresh dense device store of a stream, which request made it.

Words: a *store* is one event that made blocks resident, a *batch* what an engine published after one *step*. A *chain* is
a prompt's blocks from where its reuse ended; a *path* the stores that one request can have made; a *component* the requests
that share stores on their paths; a *cover* one path for each of them, with every store on exactly one; an *orphan store*
lies on no path of a request that was seen.
"""

from .account import Account as Account
from .outcome import Completeness as Completeness
from .outcome import Outcome as Outcome
from .outcome import Result as Result
from .outcome import Said as Said
from .outcome import Share as Share
from .outcome import Support as Support
from .outcome import Why as Why
from .residence import Residence as Residence
from .stream import Stream as Stream
from .values import Batch as Batch
from .values import Habits as Habits
from .values import Limits as Limits
from .values import Request as Request
from .values import RequestId as RequestId
from .values import Store as Store
