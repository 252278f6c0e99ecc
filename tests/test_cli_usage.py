"""The command line's manners: exit codes, stdout purity, messages, documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import riemem
from click.testing import CliRunner
from riemem.cli import cli, main

ROOT = Path(__file__).parents[1]


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for part, child in command.commands.items():
            yield from leaves(child, f"{name} {part}".strip())
    else:
        yield name, command


COMMANDS = dict(leaves(cli, ""))


def run(
    *words: str, store: Path | None = None, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    environment = dict(os.environ, RIEMEM_EMBEDDER="hashing", PYTHONWARNINGS="error::UserWarning")
    if store is not None:
        environment["RIEMEM_STORE"] = str(store)
    return subprocess.run(
        [sys.executable, "-m", "riemem", *words],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )


def test_the_commands_of_the_design_exist() -> None:
    assert set(COMMANDS) >= {
        "add", "search", "recall", "get", "list", "update", "forget", "stats", "check", "demo",
        "doctor", "reembed", "models pull", "models list", "models verify", "eval locomo",
    }  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json_and_explains_itself(name: str) -> None:
    options = {word for parameter in COMMANDS[name].params for word in parameter.opts}
    assert "--json" in options
    assert COMMANDS[name].help
    result = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: riemem {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str) -> None:
    silent = [
        parameter.name
        for parameter in COMMANDS[name].params
        if isinstance(parameter, click.Option) and not parameter.help and parameter.name != "offset"
    ]
    assert silent == []


def test_every_command_is_documented_and_no_other() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    documented = {
        line[len("## riemem ") :] for line in text.splitlines() if line.startswith("## riemem ")
    }
    assert documented == set(COMMANDS)


def test_version_is_that_of_the_package() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        f"riemem {riemem.__version__}\n",
        "",
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["purgee"], "'purgee'"),
        (["serch", "x"], "Did you mean 'search'?"),
        (["models", "fetch"], "'fetch'"),
        (["search"], "QUERY"),
        (["search", "x", "-k", "-5"], "'-k'"),
        (["search", "x", "-k", "0"], "'-k'"),
        (["search", "x", "-k", "1.5"], "'-k'"),
        (["search", "x", "--k", "true"], "'-k'"),
        (["search", "x", "--since", "yesterday"], "'--since'"),
        (["search", "x", "--since", "2024-01-01T00:00:00"], "offset"),
        (["search", "x", "--filter", "topic"], "KEY=VALUE"),
        (["recall", "x", "--budget", "many"], "'--budget'"),
        (["recall", "x", "--budget", "0"], "'--budget'"),
        (["list", "--limit", "-1"], "'--limit'"),
        (["list", "--order", "score"], "'--order'"),
        (["get"], "ID"),
        (["get", "twelve"], "'twelve'"),
        (["forget"], "nothing chosen"),
        (["update", "1"], "nothing to change"),
        (["add", "x", "--when", "2024-02-30"], "'--when'"),
        (["add", "x", "--embedder", "hashing:many"], "'--embedder'"),
        (["add", "--jsonl", "no-such-file.jsonl"], "no-such-file.jsonl"),
        (["models", "pull", "gpt-7"], "minilm"),
        (["eval", "locomo", "no-such-file.json"], "no-such-file.json"),
        (["stats", "--colour"], "--colour"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_what_is_wrong(
    words: list[str], named: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(cli, words, env={"RIEMEM_STORE": str(tmp_path / "none.db")})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("riemem: error: ")
    assert named in result.stderr
    assert "--help" in result.stderr.splitlines()[1]
    assert list(tmp_path.iterdir()) == []


def test_no_command_at_all_shows_the_help_and_is_not_a_success() -> None:
    result = CliRunner().invoke(cli, [])
    assert result.exit_code == 2
    assert "Usage: riemem" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["search", "x"],
        ["recall", "x"],
        ["get", "1"],
        ["list"],
        ["update", "1", "x"],
        ["forget", "1"],
        ["stats"],
        ["check"],
        ["reembed"],
    ],
)
def test_a_missing_store_ends_with_3_and_is_not_made(words: list[str], tmp_path: Path) -> None:
    store = tmp_path / "missing.db"
    result = CliRunner().invoke(cli, [*words, "--store", str(store), "--embedder", "hashing"])
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith(f"riemem: error: store: no such file: {store}")
    assert "riemem: hint: riemem add" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_home_without_room_for_a_store_names_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    result = CliRunner(env={"RIEMEM_STORE": None, "XDG_DATA_HOME": str(tmp_path / "home")}).invoke(
        cli, ["add", "tea", "--embedder", "hashing"]
    )
    assert result.exit_code == 3
    assert result.stderr.startswith("riemem: error: store: the folder ")
    assert "riemem: hint: --store FILE or RIEMEM_STORE names another place" in result.stderr


def test_a_store_that_may_only_be_read_is_checked_and_says_what_was_not(tmp_path: Path) -> None:
    store = tmp_path / "me.db"
    words = ["--store", str(store), "--embedder", "hashing"]
    runner = CliRunner()
    assert runner.invoke(cli, ["add", "tea", *words]).exit_code == 0
    assert "skipped" not in runner.invoke(cli, ["check", *words]).stdout
    store.chmod(0o444)
    result = runner.invoke(cli, ["check", *words])
    assert result.exit_code == 0, result.stderr
    assert "skipped: words: not compared with the texts" in result.stdout
    assert json.loads(runner.invoke(cli, ["check", "--json", *words]).stdout)["check"]["skipped"]
    assert runner.invoke(cli, ["check", "--repair", *words]).exit_code == 3
    assert runner.invoke(cli, ["check", "--conflicts", *words]).exit_code == 3


def test_a_stranger_file_is_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "notes.txt"
    store.write_bytes(b"these are my notes, not a database\n" * 100)
    for words in (["search", "x"], ["add", "x"], ["forget", "1"]):
        result = CliRunner().invoke(cli, [*words, "--store", str(store), "--embedder", "hashing"])
        assert result.exit_code == 3, result.output
        assert result.stderr.startswith("riemem: error: ")
        assert "Traceback" not in result.stderr
    assert store.read_bytes() == b"these are my notes, not a database\n" * 100
    assert list(tmp_path.iterdir()) == [store]


def test_errors_with_json_are_one_document_on_stderr(tmp_path: Path) -> None:
    result = run("search", "x", "--json", store=tmp_path / "missing.db")
    assert (result.returncode, result.stdout) == (3, "")
    error = json.loads(result.stderr)["error"]
    assert error["type"] == "MissingStoreError"
    assert error["exit_code"] == 3
    assert "missing.db" in error["message"]
    usage = json.loads(run("search", "x", "-k", "-5", "--json").stderr)["error"]
    assert (usage["type"], usage["exit_code"]) == ("UsageError", 2)
    assert "-k" in usage["message"]


def test_stdout_holds_the_result_and_nothing_else(tmp_path: Path) -> None:
    store = tmp_path / "me.db"
    added = run("add", "Biscuit weighs 11.4 kilos", "--json", store=store)
    assert (json.loads(added.stdout)["ids"], added.stderr) == ([1], "")
    found = run("search", "how heavy is Biscuit?", "--json", store=store)
    assert json.loads(found.stdout)["hits"][0]["id"] == 1
    assert found.stderr == ""
    context = run("recall", "how heavy is Biscuit?", "--budget", "200", store=store)
    assert context.stdout.endswith("Biscuit weighs 11.4 kilos\n")
    assert "of 200 tokens" in context.stderr


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    store = tmp_path / "me.db"
    lines = "\n".join(f"entry {i} " + "x" * 2000 for i in range(200))
    assert run("add", "-", store=store, text=lines).returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "riemem", "list", "--limit", "200", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Unbuffered, Python does not notice that a large write was cut short.
        env=dict(
            os.environ, RIEMEM_STORE=str(store), RIEMEM_EMBEDDER="hashing", PYTHONUNBUFFERED=""
        ),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_console_that_cannot_show_a_text_gets_it_spelt_out(tmp_path: Path) -> None:
    store = tmp_path / "me.db"
    environment = dict(
        os.environ, RIEMEM_STORE=str(store), RIEMEM_EMBEDDER="hashing", PYTHONIOENCODING="cp1252"
    )
    assert run("add", "čaj z máty", store=store).returncode == 0
    result = subprocess.run(
        [sys.executable, "-m", "riemem", "get", "1"],
        capture_output=True,
        env=environment,
        check=True,
    )
    assert b"\\u010daj z m\xe1ty" in result.stdout


def test_without_click_the_command_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('click', 'torch', 'transformers', 'platformdirs'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from riemem.cli import main\n"
        "sys.exit(main(['stats']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (3, "")
    assert "click" in result.stderr.splitlines()[0]
    assert "pip install 'riemem[text]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_help_and_version_load_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from riemem.cli import main\n"
        "assert main(['search', '--help']) == 0\n"
        "loaded = {'torch', 'transformers', 'tokenizers'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_main_returns_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"riemem {riemem.__version__}\n"
    assert main(["purgee"]) == 2
    assert capsys.readouterr().out == ""
