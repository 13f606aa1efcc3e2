from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_APPLIED: _ClassVar[Outcome]
    OUTCOME_DUPLICATE: _ClassVar[Outcome]
    OUTCOME_GAP: _ClassVar[Outcome]
    OUTCOME_RESTARTED: _ClassVar[Outcome]
    OUTCOME_LATE_JOIN: _ClassVar[Outcome]
    OUTCOME_BAD: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_APPLIED: Outcome
OUTCOME_DUPLICATE: Outcome
OUTCOME_GAP: Outcome
OUTCOME_RESTARTED: Outcome
OUTCOME_LATE_JOIN: Outcome
OUTCOME_BAD: Outcome

class PushRequest(_message.Message):
    __slots__ = ("origin", "seq", "payload", "events")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    seq: int
    payload: bytes
    events: EventBatch
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., seq: _Optional[int] = ..., payload: _Optional[bytes] = ..., events: _Optional[_Union[EventBatch, _Mapping]] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("origin", "seq", "time_unix_nano", "media", "resident")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    origin: Origin
    seq: int
    time_unix_nano: int
    media: _containers.RepeatedScalarFieldContainer[str]
    resident: _containers.RepeatedCompositeFieldContainer[Stored]
    def __init__(self, origin: _Optional[_Union[Origin, _Mapping]] = ..., seq: _Optional[int] = ..., time_unix_nano: _Optional[int] = ..., media: _Optional[_Iterable[str]] = ..., resident: _Optional[_Iterable[_Union[Stored, _Mapping]]] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("source", "worker", "rank", "model", "kv_connector")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KV_CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    source: str
    worker: str
    rank: int
    model: str
    kv_connector: bool
    def __init__(self, source: _Optional[str] = ..., worker: _Optional[str] = ..., rank: _Optional[int] = ..., model: _Optional[str] = ..., kv_connector: _Optional[bool] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("time_unix_nano", "events")
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    time_unix_nano: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, time_unix_nano: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("stored", "removed", "cleared")
    STORED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    stored: Stored
    removed: Removed
    cleared: Cleared
    def __init__(self, stored: _Optional[_Union[Stored, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., cleared: _Optional[_Union[Cleared, _Mapping]] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("keys", "parent", "block_size", "token_ids", "medium", "group")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MEDIUM_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[int]
    parent: int
    block_size: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    medium: str
    group: int
    def __init__(self, keys: _Optional[_Iterable[int]] = ..., parent: _Optional[int] = ..., block_size: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., medium: _Optional[str] = ..., group: _Optional[int] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("keys", "medium", "group")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MEDIUM_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[int]
    medium: str
    group: int
    def __init__(self, keys: _Optional[_Iterable[int]] = ..., medium: _Optional[str] = ..., group: _Optional[int] = ...) -> None: ...

class Cleared(_message.Message):
    __slots__ = ("medium",)
    MEDIUM_FIELD_NUMBER: _ClassVar[int]
    medium: str
    def __init__(self, medium: _Optional[str] = ...) -> None: ...

class PushResponse(_message.Message):
    __slots__ = ("seq", "outcome", "missing_first", "missing_last")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIRST_FIELD_NUMBER: _ClassVar[int]
    MISSING_LAST_FIELD_NUMBER: _ClassVar[int]
    seq: int
    outcome: Outcome
    missing_first: int
    missing_last: int
    def __init__(self, seq: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., missing_first: _Optional[int] = ..., missing_last: _Optional[int] = ...) -> None: ...
