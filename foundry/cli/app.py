"""The commands and their help texts."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from foundry.modes import Mode

app = typer.Typer(
    name="foundry",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="""Keep captured CUDA graphs across processes.

    A program that serves a model captures CUDA graphs when it starts, which takes seconds to minutes every time.
    Foundry writes them into an archive once (SAVE) and gives them back ready to run in every later start (LOAD).

    Typical use: `foundry run --save -- python serve.py` once, then `python serve.py` as always, where serve.py wraps
    its start in `with foundry.session("decode.fdry"):`.
    """,
)


def _fail(problem: Exception) -> NoReturn:
    typer.echo(f"foundry: {problem}", err=True)
    raise typer.Exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        import foundry

        typer.echo(f"foundry {foundry.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


def _folder(value: str | None) -> str | None:
    if value is not None and (not value or value.startswith("-")):
        raise typer.BadParameter(f"{value!r} is no folder: name one between --archive and the rest of the command")
    return value


@app.command("run", context_settings={"allow_interspersed_args": False})
def run_command(
    command: Annotated[
        list[str] | None, typer.Argument(help="The program and its arguments.", metavar="-- COMMAND...")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Preload the hook, so that the program can SAVE.")] = False,
    load: Annotated[bool, typer.Option("--load", help="The program LOADs; nothing is preloaded.")] = False,
    auto: Annotated[
        bool, typer.Option("--auto", help="LOAD where an archive has served this start before, else let it SAVE.")
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="The program runs as if it did not use Foundry.")] = False,
    archive: Annotated[
        str | None,
        typer.Option(
            help="The archive, for programs that leave its place open (foundry.session() without a path). "
            "Without it, FOUNDRY_ARCHIVE, else a folder in the user's cache.",
            metavar="DIR",
            callback=_folder,
        ),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="An archive that is saved is compressed; it takes longer to open.")
    ] = False,
) -> None:
    """Start a program that uses Foundry.

    To SAVE, a small library (libcuda_hook.so) must be loaded before the program starts: it sees which GPU code the
    program loads and where its memory lies. This command picks the build for the GPU, puts it into LD_PRELOAD and
    becomes the program. Without an option: --auto.

    Environment: FOUNDRY_SM (80 or 90) picks the hook's build, FOUNDRY_HOOK_LIBRARY names its file, FOUNDRY_LOG=1 lets
    the hook write its diagnoses to stderr. FOUNDRY_MODE, FOUNDRY_ARCHIVE and, with --compact, FOUNDRY_COMPACT are set for
    the program.

    Exit code: the program's; 125 if Foundry cannot start it, 126 if it cannot be executed, 127 if it does not exist.
    """
    flags: dict[Mode, bool] = {"save": save, "load": load, "auto": auto, "off": off}
    chosen = [mode for mode, wanted in flags.items() if wanted]
    if len(chosen) > 1:
        raise typer.BadParameter(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    if not command:
        raise typer.BadParameter("name the program to start: foundry run --auto -- python serve.py")
    from foundry import modes
    from foundry.cli.run import run

    if compact:
        os.environ[modes.COMPACT_VARIABLE] = "1"
    run(chosen[0] if chosen else "auto", archive, command)


@app.command("inspect")
def inspect_command(
    archive: Annotated[str, typer.Argument(help="The archive's directory.")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    pointers: Annotated[
        bool, typer.Option("--pointers", help="Also list every device pointer in the graphs and what it points to.")
    ] = False,
) -> None:
    """Show what an archive holds.

    Zones (address ranges) and their bytes, graphs and their nodes by type, images of GPU code, and the fingerprint:
    what must be equal for the archive to be usable. Everything is verified on the way; no GPU is needed.

    Exit code: 0; 1 if the archive cannot be read or is damaged; 2 for wrong arguments.
    """
    from foundry import _core
    from foundry.cli import inspecting

    try:
        found = inspecting.open_archive(archive)
        if json_:
            _print_json(inspecting.as_json(found, pointers))
        else:
            inspecting.show(found, pointers, _console())
    except _core.FoundryError as problem:
        _fail(problem)


@app.command("diff")
def diff_command(
    archive: Annotated[str, typer.Argument(help="The archive's directory.")],
    load_journal: Annotated[
        str | None, typer.Argument(help="The journal of a LOAD; without it, what SAVE allocated is shown.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    frames: Annotated[int, typer.Option(help="How many frames of each stack to show.", min=0)] = 12,
    symbols: Annotated[
        list[str] | None,
        typer.Option(help="A folder with the program's libraries, for names of functions; more than once for several.",
                     metavar="DIR"),
    ] = None,
) -> None:  # fmt: skip
    """Show where a LOAD allocated differently from the SAVE.

    A journal lists every allocation. SAVE keeps one in the archive; a LOAD writes one to the file that
    FOUNDRY_JOURNAL_FILE names, if FOUNDRY_JOURNAL is "sizes", "stacks" (with the call stack of each) or "stacks,python"
    (with Python frames: function, file and line). Run both with FOUNDRY_JOURNAL=stacks to see who allocated.

    For every zone that LOAD rebuilds: the first allocation that is extra, missing, of another size or out of order,
    its neighbours and stacks on both sides, and which graphs and tensors of the archive depend on its addresses. No GPU
    is needed.

    Exit code: 0; 1 if a file cannot be read or is damaged; 2 for wrong arguments.
    """
    from foundry import _core
    from foundry.cli import diffing
    from foundry.symbols import Resolver

    try:
        if load_journal is None:
            journal, _ = diffing.open_archive(archive)
            if json_:
                _print_json({"archive": archive, "save": diffing.summary(journal)})
            else:
                diffing.show_summary(archive, journal, _console())
            return
        found = diffing.compare(archive, load_journal)
        resolver = Resolver(symbols or ())
        if json_:
            _print_json(diffing.as_json(found, resolver))
        else:
            diffing.show(found, resolver, frames, _console())
    except _core.FoundryError as problem:
        _fail(problem)


@app.command("verify")
def verify_command(
    archive: Annotated[str, typer.Argument(help="The archive's directory.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A program that loads the archive, and its arguments.", metavar="[-- COMMAND...]"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check an archive, and with a program whether its graphs still compute the same.

    Alone: every file is read and compared with foundry.json, every index and hash is checked; no GPU is needed. With a
    program: it is started in mode load, replays the golden runs (SAVE with golden=True records them) inside its session
    before anything else, and every graph is compared. The program is needed because weights are not in the archive.

    Environment set for the program: FOUNDRY_MODE=load, FOUNDRY_ARCHIVE, FOUNDRY_VERIFY=1, FOUNDRY_VERIFY_REPORT.

    Exit code: 0 if all is well; 1 if the archive is damaged or a graph computes something else; 2 for wrong arguments;
    3 if the program failed or compared nothing.
    """
    from foundry import _core
    from foundry.cli import verifying

    try:
        files = verifying.check_files(archive)
    except _core.FoundryError as problem:
        _fail(problem)
    run = verifying.run_command(files.found.path, command) if command else None
    if json_:
        _print_json(verifying.as_json(files, run))
    else:
        verifying.show(files, run, _console())
    raise typer.Exit(run.code if run is not None else verifying.OK)


@app.command("trace")
def trace_command(
    source: Annotated[str, typer.Argument(help="A recording (FOUNDRY_TRACE=FILE), or an archive to restore here.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The picture; *.json: Chrome-trace JSON.")],
    device: Annotated[int, typer.Option(help="For an archive: the GPU to restore it on.")] = 0,
) -> None:
    """Draw what happened when during a start: phases, restoring threads, bytes and counts.

    A program that runs with FOUNDRY_TRACE=FILE records its session's start. With an archive, this command restores it
    once, without the program that it belongs to, and draws that; it needs a GPU. The picture is one HTML file that
    needs nothing else; the JSON is for chrome://tracing and Perfetto.

    Exit code: 0; 1 if the source cannot be read or restored, or the picture cannot be written.
    """
    from foundry import _core
    from foundry.cli import tracing

    try:
        tracing.write(output, source, tracing.events_of(source, device))
    except OSError as problem:
        _fail(ValueError(f"{problem.filename or source}: {problem.strerror or problem}"))
    except (_core.FoundryError, ValueError) as problem:
        _fail(problem)


@app.command("doctor")
def doctor_command(
    archive: Annotated[str | None, typer.Argument(help="An archive to check too.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check whether Foundry can work on this machine.

    Looks at driver, GPU, PyTorch and its settings, the addresses that Foundry uses, the hook and whether preloading
    reaches child processes, and other preloaded libraries. Nothing is changed.

    Exit code: 0 if no check is a problem, 1 otherwise.
    """
    from foundry.cli import doctor

    checks = doctor.examine(os.environ, archive)
    if json_:
        _print_json(doctor.as_json(checks))
    else:
        from rich.table import Table

        colours = {"ok": "green", "warning": "yellow", "problem": "red", "skipped": "dim"}
        table = Table(box=None, show_header=False, pad_edge=False)
        for check in checks:
            table.add_row(check.name, f"[{colours[check.status]}]{check.status}[/]", _plain(check.sentence))
        _console().print(table)
    raise typer.Exit(0 if doctor.healthy(checks) else 1)


@app.command("gc")
def gc_command(
    folder: Annotated[str, typer.Argument(help="A directory with archives, or one archive.", metavar="DIR")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
) -> None:
    """Remove what interrupted SAVEs left behind.

    A SAVE writes into a directory beside the archive (ARCHIVE.tmp-...) and renames it at the end. If its process dies,
    that directory stays. Those of living processes are left alone; an archive that was being replaced is put back.

    Exit code: 0; 1 if something could not be read or removed.
    """
    from foundry import _core
    from foundry.cli import cleaning
    from foundry.text import size

    try:
        found = cleaning.clean(folder, dry_run)
    except (_core.FoundryError, OSError) as problem:
        _fail(problem)
    for leftover in found:
        verb = "put back" if leftover.restored else "removed"
        typer.echo(f"{'would be ' if dry_run else ''}{verb}: {leftover.path} ({size(leftover.nbytes)})")
    if not found:
        typer.echo("nothing to remove" + ("" if os.path.lexists(folder) else f": there is no {folder}"))


def _console() -> Any:
    from rich.console import Console

    # Wide enough for whole lines where the output is no terminal.
    return Console(width=None if sys.stdout.isatty() else 200, soft_wrap=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=1))
