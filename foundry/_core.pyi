"""Types of the C++ core. Addresses, sizes and stream handles are plain ints; bytes are bytes.

Every function raises FoundryError with a sentence when it fails; nothing prints, aborts or exits.
"""

from collections.abc import Sequence

class FoundryError(Exception):
    """Anything Foundry refuses or fails at. str() is the sentence for people."""

    kind: str  # "driver" | "invalid" | "corrupt" | "mismatch" | "unsupported" | "out_of_memory" | "io" | "state"
    code: int  # CUresult or errno, 0 where there is none

# ---- build and process

VERSION: str
FORMAT_VERSION: int
MAX_ZONES: int

class Owner:
    """Who holds this process's zones: the preloaded hook, or this module."""

    name: str  # "hook" | "core"
    build: str
    sm_target: int  # 80 | 90, 0 for the core

def owner() -> Owner: ...
def diagnoses() -> list[str]:
    """Sentences that the hook or the core recorded instead of failing or printing."""

class DeviceInfo:
    ordinal: int
    name: str
    major: int
    minor: int
    sm_count: int
    total_memory: int  # bytes
    driver_version: int  # as cuDriverGetVersion, e.g. 13000
    uuid: str

def driver_available() -> str | None:
    """None if a CUDA driver answers, else the reason as a sentence."""

def device_count() -> int: ...
def device_info(ordinal: int) -> DeviceInfo: ...

# ---- zones

class ZoneInfo:
    slot: int
    name: str
    kind: str  # "rebuilt" | "ambient" | "graphs" | "private"
    device: int
    granularity: int  # bytes
    base: int
    size: int
    used_end: int
    live_bytes: int
    mapped_bytes: int
    quarantined_bytes: int
    allocations: int
    frees: int

class Range:
    address: int
    bytes: int
    mapped_bytes: int
    ordinal: int
    slot: int
    state: str  # "live" | "quarantined" | "released" | "materialized"

def zone_open(device: int, name: str, kind: str, base: int = 0, size: int = 0) -> int:
    """Opens (or finds) a zone and returns its slot. base 0: next free window."""

def zone_close(slot: int) -> None: ...
def zones() -> list[ZoneInfo]: ...
def ranges(slot: int) -> list[Range]: ...
def zone_alloc(slot: int, nbytes: int, alignment: int = 0, stream: int = 0) -> int: ...
def zone_free(address: int, stream: int = 0) -> None: ...
def in_zone(address: int) -> int | None:
    """Slot of the zone whose window holds the address."""

def set_ambient(device: int, slot: int | None) -> None:
    """Routes plain allocations of the device (hook only)."""

def capture_delta(delta: int) -> None: ...
def seal(sealed: bool) -> None: ...
def buffer_span(memory: object) -> tuple[int, int]:
    """Address and bytes of an object with the buffer protocol. Raises FoundryError(kind="invalid") for any other."""

def release_quarantine() -> None: ...

class AllocatorSymbols:
    """C functions of a zone slot, as torch.cuda.memory.CUDAPluggableAllocator wants them.

    void* malloc(ssize_t bytes, int device, CUstream stream); void free(void*, ssize_t bytes, int device, CUstream stream)
    """

    library: str  # path of the shared object
    malloc: str
    free: str
    malloc_address: int
    free_address: int

def allocator_symbols(slot: int) -> AllocatorSymbols: ...
def take_allocation_errors() -> list[str]:
    """Sentences of allocations that failed inside those C functions (they can only return null); clears the list."""

# ---- SAVE

class Tensor:
    """One tensor by address: what SAVE records and LOAD gives back. sizes and strides in elements."""

    def __init__(
        self,
        name: str,
        dtype: str,
        item_bytes: int,
        address: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        storage_address: int,
        storage_bytes: int,
        constant: bool = False,
        mutable: bool = False,
        output: bool = False,
        export: bool = False,
    ) -> None: ...
    name: str
    dtype: str
    item_bytes: int
    address: int
    nbytes: int  # extent: last element's end minus address
    sizes: list[int]
    strides: list[int]
    storage_address: int
    storage_bytes: int
    storage: int  # index: tensors with one storage alias each other
    constant: bool
    mutable: bool
    output: bool
    export: bool
    anchor: int | None  # LOAD: index of the anchor whose storage an output shares

class GraphSummary:
    """A captured graph of a SAVE or of an archive."""

    index: int
    name: str
    nodes: int
    edges: int
    nodes_by_type: dict[str, int]
    outputs: str  # JSON tree
    generator_increment: int

class SaveReport:
    graphs: list[GraphSummary]
    left_out: dict[str, list[str]]  # graph name -> sentences
    warnings: list[str]
    bytes_by_file: dict[str, int]
    mapped_bytes: int
    content_bytes: int  # before deduplication and compression
    stored_bytes: int
    images: int
    image_bytes: int
    milliseconds: dict[str, float]  # step -> time

class Staging:
    """A directory next to the archive that becomes the archive by one rename, or disappears."""

    def __init__(self, archive: str) -> None: ...
    path: str
    def write_text(self, name: str, text: str) -> None: ...
    def publish(self) -> list[str]:
        """Renames; foundry.json must have been written. Returns warnings, e.g. what is left of an old archive."""

    def discard(self) -> None: ...

class MemoryScanner:
    """Looks at device memory as SAVE does: on the device where the preloaded hook has code for it, else on the host."""

    def __init__(self, device: int, host: bool = False) -> None:
        """host: on the host in any case."""

    @property
    def on_device(self) -> bool: ...
    @property
    def note(self) -> str:
        """Why not, if that is no matter of the device's kind."""

    def summaries(self, address: int, nbytes: int) -> list[tuple[int, int, bool, int]]:
        """(fingerprint, fingerprint, zeros only, bytes) of each started 64 KiB; the address is a multiple of 16."""

    def pointers(self, address: int, nbytes: int, windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """(address, value) of the aligned words that point into a window (begin, end), by ascending address."""

class Saver:
    """Collects graphs and tensors of one rank and writes them."""

    def __init__(self, device: int) -> None: ...
    def add_graph(self, raw_graph: int, name: str) -> int:
        """Snapshots a captured CUgraph now. Raises FoundryError(kind="unsupported") naming node and neighbours."""

    def add_host_range(self, name: str, address: int, nbytes: int) -> None:
        """Pinned memory that graphs added afterwards may use. Raises FoundryError(kind="invalid") if it is not pinned."""

    def set_outputs(self, graph: int, tree: str, tensors: Sequence[int]) -> None:
        """tree: JSON of the nesting, leaves index into tensors (as returned by add_tensor)."""

    @staticmethod
    def takes_capture_input(tensor: Tensor) -> bool:
        """Whether it is a small mutable one of integers. Any thread may ask, also while another one adds a graph."""

    def take_capture_inputs(self, tensors: Sequence[Tensor]) -> None:
        """Right after a capture, before any replay: what small mutable ones of integers among these registered tensors hold
        now belongs to the graph that is added next."""

    def add_tensor(self, tensor: Tensor) -> int: ...
    def set_generator(self, graph: int, increment: int, seed: int, offset: int) -> None:
        """The graph draws random numbers: finds the device words that hold these two values right now.

        Raises FoundryError(kind="unsupported") where its arguments do not show exactly one word for each.
        """

    def name_event(self, event: int, name: str, flags: int) -> bool:
        """LOAD hands a CUevent back under this name, created with these CUevent_flags. False if no graph uses it."""

    def set_blocks(self, blocks: Sequence[tuple[int, int, bool]]) -> None:
        """What the framework's allocator says of its segments: (address, bytes, active)."""

    def watch_inputs(self, blocks: Sequence[tuple[int, int, bool]], again: bool) -> None:
        """After a capture: remembers what memory holds that only warm-ups and other code of the program made.

        again: also what became of memory that is known, which takes as long as reading all of it.
        """

    def examine(self) -> list[tuple[int, str]]:
        """Audits; nothing can be added afterwards. Graphs (index, name) that are in doubt: some words of their nodes
        point to freed memory, or only look so. What settle() does not clear is left out."""

    def settle(self, graph: int, refusal: str) -> None:
        """refusal: why the words may be pointers; empty: they are padding."""

    def keep_state(self) -> None:
        """Keeps, once, what replays change: mutable tensors, materialized content, module variables. After examine()."""

    def restore_state(self) -> None: ...
    def fingerprint(self, graph: int) -> str:
        """Of the graph's outputs and the kept mutable tensors now; empty if there are neither."""

    def expose(self, graph: int) -> None:
        """Before a graph in doubt is replayed: maps and keeps the freed memory that it may point to, until heal()."""

    def poison(self, pattern: int) -> None:
        """Fills that memory; pattern is below POISON_PATTERNS."""

    def untouched(self) -> bool:
        """Whether that memory still holds the pattern."""

    def heal(self) -> None:
        """Brings back what poison() overwrote, unmaps what expose() mapped; nothing to do is no error."""

    def put_capture_inputs(self, graph: int) -> None:
        """Before a replay, after all else that puts memory back: small inputs as they were when it was captured."""

    def changed_inputs(self) -> list[int]:
        """Graphs that read watched memory which holds something else now. After examine().

        They are to be replayed in rounds, all in one order: put_inputs first, output_fingerprint after each, note_writes
        at last.
        """

    def put_inputs(self, earlier: bool) -> None:
        """What replays change, but for large tensors, is as at the first call; watched memory holds what it held then,
        or when it was watched."""

    def output_fingerprint(self, graph: int) -> str:
        """Of the graph's outputs now; empty if it has none."""

    def note_writes(self, earlier: bool) -> None:
        """What differs from what put_inputs(earlier) put was written by the replays of the round."""

    def unwritten_inputs(self) -> list[int]:
        """Graphs that read changed memory which no round wrote."""

    def settle_inputs(self, graph: int, refusal: str) -> None:
        """refusal: why the graph may depend on that memory."""

    def expose_inputs(self) -> list[int]:
        """What of it only graphs read that are not settled can be poisoned until heal(): those graphs. After put_inputs."""

    def judge_inputs(self) -> None:
        """Leaves out graphs that may depend on it, and others that read the same memory."""

    def prepare_golden(self) -> None:
        """restore_state(), and a filling for mutable memory that is too large to be stored."""

    def observe_golden(self, graph: int, seed: int, offset: int) -> None:
        """The graph has just been replayed: the first call for it begins its golden run, further ones measure the spread."""

    def write_golden(self, staging: Staging, rank: int) -> int:
        """After write(). Brings the kept state back; returns the bytes of mutable memory that are zero now instead."""

    def write(self, staging: Staging, rank: int, strict: bool, compact: bool) -> SaveReport:
        """Audits, finds what to materialize, writes images/ and rank_<n>/. strict: any finding is an error.

        compact: graphs are compressed; the archive takes longer to open.
        """

POISON_PATTERNS: int

def describe_files(staging_path: str) -> list[tuple[str, int, str]]:
    """(relative name, bytes, identity hash) of every file; for foundry.json's inventory."""

# ---- reading and LOAD

ArchiveGraph = GraphSummary

class ArchiveImage:
    hash: str
    bytes: int
    format: str  # "fatbin" | "elf" | "ptx"
    source: str

class ArchiveZone:
    name: str
    kind: str
    base: int
    size: int
    used_end: int
    allocations: int
    allocated_bytes: int
    mapped_bytes: int  # materialized
    content_bytes: int

class PointerSummary:
    graph: str
    node: int
    kernel: str
    parameter: int  # -1 source, -2 destination, -3 access window
    offset: int
    value: int
    pointer_class: str
    target: str

def read_text(archive: str, name: str) -> str:
    """foundry.json, read without following links; size-limited."""

def archive_warnings(archive: str) -> list[str]:
    """Ownership and permission sentences (world-writable, other owner)."""

class Stale:
    """What a SAVE that died left beside an archive."""

    path: str
    pid: int
    bytes: int
    restorable: bool  # the old archive itself, set aside when its SAVE died: put back, not removed

def list_stale(archive: str) -> list[Stale]: ...
def remove_stale(archive: str) -> list[Stale]: ...

class Archive:
    """A verified archive of one rank: all hashes and all indices checked. Nothing of it touches a device."""

    def __init__(self, path: str, rank: int, inventory: Sequence[tuple[str, int, str]]) -> None: ...
    graphs: list[ArchiveGraph]
    images: list[ArchiveImage]
    zones: list[ArchiveZone]
    tensors: list[Tensor]
    events: dict[str, list[int]]  # name -> graphs that record it or wait for it
    def pointers(self) -> list[PointerSummary]: ...
    def verify_images(self) -> None: ...

class Event:
    """An event of restored graphs, which live as long as it does. Streams are handles, 0 is the null stream."""

    handle: int  # CUevent
    def record(self, stream: int) -> None:
        """While the stream captures this becomes a node of the graph; so does wait()."""

    def wait(self, stream: int) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool: ...

class LoadStats:
    milliseconds: dict[str, float]
    mapped_bytes: int
    content_bytes: int
    images: int
    functions: int
    nodes: int
    exec_device_bytes: int
    exec_host_bytes: int
    execs: int
    evicted: int
    rebuilt: int

def trace_enable(enabled: bool) -> None:
    """Whether threads of the core record what they do."""

def trace_name_thread(name: str) -> None:
    """The calling thread's name in recordings."""

def trace_take() -> tuple[list[str], list[tuple[str, str, int, int, int, int, int]], int]:
    """What was recorded since the last call: threads; events; how many events were dropped.

    An event is (what, of what, index of its thread, begin, end, bytes, count), times in ns of time.monotonic_ns().
    """

class Loader:
    """Restores an archive into this process. Steps in order; any failure raises and leaves nothing mapped by it."""

    def __init__(self, archive: Archive, device: int) -> None: ...
    def open_zones(self) -> dict[str, int]:
        """Reserves every recorded window and arms the recorded placements; returns zone name -> slot."""

    def map(self) -> None:
        """Maps materialized memory and begins to fill it in the background."""

    def wait_content(self) -> None:
        """Until it is filled; raises what is wrong with its content."""

    def claim(self, address: int, nbytes: int) -> None:
        """Maps recorded rebuilt memory that nobody allocated on LOAD (re-seating needs it). No-op where mapped."""

    def start(
        self,
        order: Sequence[int],
        *,
        image_threads: int = ...,
        graph_threads: int = ...,
        grow_heaps: bool = ...,
        exec_budget: int = 0,
    ) -> None:
        """Loads images and builds graphs on background threads, in this order.

        Graphs with copies or fills are built after settle(): the driver checks the addresses in them. The keywords
        spread the work over threads (RestoreTuning in csrc/graph/restore.h); exec_budget: device memory that execs may
        take (RestoreOptions there), 0 for any.
        """

    def register_host(self, name: str, address: int, nbytes: int) -> None:
        """Between start() and settle(). What is wrong with the memory becomes the error of the graphs that use it."""

    def settle(self) -> None:
        """The memory of all rebuilt zones is mapped now."""

    def cancel(self) -> None:
        """Ends the background work: graphs that are not ready fail. Returns when its threads have stopped."""

    def wait(self, graph: int) -> None:
        """Until that graph can be launched; raises its error."""

    def launch(self, graph: int, stream: int) -> None: ...
    def launch_random(self, graph: int, stream: int, seed: int, offset: int) -> None:
        """Launches a graph that draws random numbers, with the generator's state as given."""

    def event(self, name: str) -> Event:
        """The event that graphs use under this name."""

    def pin(self) -> None:
        """Memory that graphs use stays mapped even if its tensors are freed."""

    def stats(self) -> LoadStats: ...
    def close(self) -> None: ...

class GoldenRun:
    """What a graph computed natively, as the archive has it."""

    index: int
    graph: int
    name: str
    replays: int  # native ones that were compared
    seed: int
    offset: int

def golden_runs(archive: Archive, rank: int, inventory: Sequence[tuple[str, int, str]]) -> list[GoldenRun]:
    """Reads and checks golden.fdry."""

class GoldenVerdict:
    """How one output compares."""

    verdict: str  # "equal" | "within spread" | "differs" | "not comparable"
    difference: float  # largest absolute one, where the comparison is by spread
    spread: float  # largest between native replays
    dtype: str
    bytes: int

class GoldenCheck:
    """Compares restored graphs with their golden runs: begin, per run prepare, (launch), compare, at last end."""

    def __init__(
        self, loader: Loader, archive: Archive, rank: int, inventory: Sequence[tuple[str, int, str]]
    ) -> None: ...
    runs: list[GoldenRun]
    def begin(self) -> int:
        """Keeps what the runs change; returns the bytes of mutable memory that end() leaves as zeros instead."""

    def prepare(self, run: int) -> None:
        """Memory as it was before that golden run."""

    def compare(self, run: int) -> list[GoldenVerdict]: ...
    def end(self) -> None:
        """Everything as before begin(), materialized memory as the archive has it."""

# ---- journals

class JournalZone:
    name: str
    kind: str
    base: int

class JournalAllocation:
    ordinal: int  # order in the process
    address: int
    bytes: int
    stream: int
    thread: int
    stack: int  # for Journal.stack, 0 if none was taken
    freed: bool
    entry_point: str

class JournalFrame:
    """A native frame. module is a base name, "" for code that no file holds; offset is as the file's symbols have it."""

    module: str
    build_id: str
    offset: int

class JournalPythonFrame:
    function: str
    file: str  # base name
    line: int

class JournalStack:
    """Innermost frames first."""

    frames: list[JournalFrame]
    python_frames: list[JournalPythonFrame]

class Journal:
    """A verified journal."""

    @staticmethod
    def of_archive(path: str, rank: int, inventory: Sequence[tuple[str, int, str]]) -> Journal: ...
    @staticmethod
    def of_file(path: str) -> Journal: ...
    @staticmethod
    def of_process(device: int) -> Journal:
        """What this process has recorded so far."""
    zones: list[JournalZone]
    events: int
    def allocations(self, zone: int | None) -> list[JournalAllocation]:
        """Of the zone with this place in `zones`, None: of no zone; in their order."""

    def stack(self, number: int) -> JournalStack: ...

def journal_recorded() -> bool:
    """Whether FOUNDRY_JOURNAL makes this process keep a journal."""

def write_journal(device: int, path: str) -> None:
    """Writes what was recorded so far; a file that is there is replaced in one step."""

class Symbols:
    """The functions of one file of code."""

    def __init__(self, path: str) -> None: ...
    build_id: str
    def at(self, address: int) -> str:
        """The function around the address, readable; "" if there is none."""

def read_build_id(path: str) -> str: ...

# ---- plain device memory (re-seating, verification; synchronous)

def read_memory(address: int, nbytes: int) -> bytes: ...
def write_memory(address: int, data: bytes) -> None: ...
def copy_memory(destination: int, source: int, nbytes: int) -> None: ...
def synchronize(device: int) -> None: ...
