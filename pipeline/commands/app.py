"""The table of commands. A command's module is imported when it is used, so that the others cost nothing."""

from __future__ import annotations

from collections import Counter
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from typer._click import Command, Context

COMMANDS = (
    "init", "run", "submit", "plan", "data", "status", "runs", "report", "diff", "translate", "serve", "convert",
    "unbinarise", "export", "publish", "gc", "doctor",
)  # fmt: skip
"""Each is a module here whose function of the same name is the command; in the order of `fewstep --help`."""

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


class CommandTable(TyperGroup):
    """The commands of `COMMANDS`, each imported when it is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return all names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return the command called `cmd_name`, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Context, args: list[str]) -> Any:
        """Load all commands before an unknown name is reported, so that the message can suggest a similar one."""
        if args and args[0] not in COMMANDS:
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Context) -> list[Any]:
        """Return all parameters; flags are shown by their names alone."""
        return _without_types(super().get_params(ctx))


def load_command(name: str) -> Command:
    """Import one command and build its parser."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    single.command(name, cls=PlainCommand, context_settings=HELP_NAMES)(getattr(import_module(f"pipeline.commands.{name}"), name))
    return typer.main.get_command(single)


class PlainCommand(TyperCommand):
    """A command whose options may be given once, unless they collect values, and whose help shows flags by their names alone."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for an option with a second value, of which the first would be lost."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(given).items():
            if times > 1 and isinstance(parameter, TyperOption) and not (parameter.multiple or parameter.is_flag):
                ctx.fail(f"{parameter.opts[0]}: expected one value, got {times}; give the option once")
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Context) -> list[Any]:
        """Return all parameters, `--help` included."""
        return _without_types(super().get_params(ctx))


def _without_types(parameters: list[Any]) -> list[Any]:
    """Give flags an empty metavar, which replaces `<bool>`."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fewstep {metadata.version('fewstep')}")
        raise typer.Exit


app = typer.Typer(cls=CommandTable, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP_NAMES)


@app.callback()
def fewstep(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train translation models from raw parallel text, score and time them, and write a report, in one resumable run."""
