"""Write docs/reference/ from the docstrings. Run it after a change of a public docstring or name:

    python docs/tools/make_reference.py

It reads the source files and imports nothing, so it needs no package and gives the same pages
everywhere. A module without a leading underscore that has ``__all__`` gets a page by itself.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "python" / "riemem"
TARGET = ROOT / "docs" / "reference"
COMMAND = "python docs/tools/make_reference.py"

#: What stands behind the public modules; their own docstrings serve the people who work on them.
INNER = {"cli", "store", "retrieval", "__main__"}

#: Packages whose modules are imported by name, each for itself.
SPREAD = {"adapters"}

_LISTS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns")
_SECTIONS = (*_LISTS, "Notes", "Examples")
_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


@dataclass
class Module:
    """A module: its dotted name, its tree, where its names are defined."""

    name: str
    tree: ast.Module
    package: bool

    def public(self) -> list[str]:
        """Return the names of ``__all__``, or nothing."""
        names: list[str] = []
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AugAssign):
                targets, value = [node.target], node.value
            else:
                continue
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                names += [
                    item.value
                    for item in getattr(value, "elts", [])
                    if isinstance(item, ast.Constant) and isinstance(item.value, str)
                ]
        return names

    def base(self) -> str:
        """Return the package that relative imports start from."""
        return self.name if self.package else self.name.rpartition(".")[0]


class Library:
    """All modules of the package, read when asked for."""

    def __init__(self) -> None:
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """Return a module of ours, or None."""
        if name not in self._modules:
            path = SOURCE.joinpath(*name.split(".")[1:])
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            known = name.split(".")[0] == "riemem" and file.exists()
            tree = ast.parse(file.read_text(encoding="utf-8")) if known else None
            self._modules[name] = None if tree is None else Module(name, tree, path.is_dir())
        return self._modules[name]

    def find(self, module: Module, name: str, depth: int = 0) -> tuple[Module, ast.AST] | None:
        """Return where a name is defined, following imports inside the package."""
        if depth > 8:
            return None
        lazy = self._lazy(module).get(name)
        if lazy is not None:
            other = self.module(lazy)
            return None if other is None else self.find(other, name, depth + 1)
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                if node.name == name and node in module.tree.body:
                    return module, node
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) != name:
                        continue
                    source = node.module or ""
                    if node.level:
                        start = module.base().split(".")
                        start = start[: len(start) - node.level + 1]
                        source = ".".join([*start, source]).rstrip(".")
                    inner = self.module(f"{source}.{alias.name}")
                    if inner is not None:
                        return inner, inner.tree
                    other = self.module(source)
                    if other is not None:
                        return self.find(other, alias.name, depth + 1)
        for node in module.tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return module, node
            elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                other = self.module(node.module or "")
                if other is not None and name in other.public():
                    return self.find(other, name, depth + 1)
        return None

    @staticmethod
    def _lazy(module: Module) -> dict[str, str]:
        for node in module.tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                named = any(isinstance(t, ast.Name) and t.id == "_LAZY" for t in targets)
                if named and isinstance(node.value, ast.Dict):
                    return {str(k): str(v) for k, v in ast.literal_eval(node.value).items()}
        return {}

    def public_modules(self) -> list[str]:
        """Return the modules that get a page, by name."""
        found = []
        for path in sorted(SOURCE.iterdir()):
            name = path.stem
            if name.startswith("_") or name in INNER:
                continue
            if name in SPREAD:
                inner = sorted(file.stem for file in path.glob("[!_]*.py"))
                found += [f"riemem.{name}.{module}" for module in inner]
            elif path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists()):
                found.append(f"riemem.{name}")
        return found

    def methods(self, module: Module, node: ast.ClassDef, depth: int = 0) -> dict[str, ast.AST]:
        """Return the public methods of a class, those of its bases in this package first."""
        found: dict[str, ast.AST] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and depth < 4:
                where = self.find(module, base.id)
                if where is not None and isinstance(where[1], ast.ClassDef):
                    found |= self.methods(where[0], where[1], depth + 1)
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not item.name.startswith("_"):
                    found.pop(item.name, None)
                    found[item.name] = item
            elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Call):
                wraps = [a for a in item.value.args if isinstance(a, ast.Attribute)]
                for target in item.targets:
                    if isinstance(target, ast.Name) and not target.id.startswith("_") and wraps:
                        found[target.id] = item
        return found


def inline(text: str) -> str:
    """Turn reStructuredText's roles and double backticks into Markdown's code."""
    text = _ROLE.sub(r"`\1`", text)
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _starts(lines: list[str], i: int) -> bool:
    """Say whether a section of a docstring starts at line i."""
    ruled = i + 1 < len(lines) and set(lines[i + 1].strip()) == {"-"}
    return ruled and lines[i].strip() in _SECTIONS


def docstring(text: str) -> list[str]:
    """Return a numpydoc docstring as Markdown; no headings, so that names alone are headings."""
    lines = text.strip("\n").split("\n")
    out: list[str] = []
    section, i = "", 0
    while i < len(lines):
        if _starts(lines, i):
            section = lines[i].strip()
            out += ["", f"**{section}**", ""]
            i += 2
            continue
        block = [lines[i]]
        while i + 1 < len(lines) and not _starts(lines, i + 1):
            i += 1
            block.append(lines[i])
        i += 1
        out += _section(section, block)
    return out


def _section(name: str, block: list[str]) -> list[str]:
    if name == "Examples":
        return ["```pycon", *"\n".join(block).strip().split("\n"), "```"]
    if name in _LISTS:
        return _items(block)
    out: list[str] = []
    literal = False
    for line in block:
        indented = line.startswith("    ")
        if indented and not literal and (not out or out[-1] == ""):
            out.append("```text")
            literal = True
        elif literal and line.strip() and not indented:
            while out[-1] == "":
                out.pop()
            out += ["```", ""]
            literal = False
        out.append(line[4:] if literal else inline(line).replace("::", ":"))
    if literal:
        while out[-1] == "":
            out.pop()
        out.append("```")
    return out


def _items(block: list[str]) -> list[str]:
    out: list[str] = []
    for line in block:
        if not line.strip():
            continue
        if line.startswith("    ") and out:
            out[-1] += (" " if out[-1].endswith((",", ";")) or ": " in out[-1] else ": ") + inline(
                line.strip()
            )
        else:
            head, _, kind = line.partition(" : ")
            out.append(f"- `{head.strip()}`" + (f" ({inline(kind.strip())})" if kind else ""))
    return out


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, method: bool) -> str:
    """Return the call as it is written, one argument a line where it is long."""
    arguments = node.args
    if method and not any(
        isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list
    ):
        first = arguments.posonlyargs or arguments.args
        if first:
            first = first[1:]
        arguments = ast.arguments(
            posonlyargs=first if arguments.posonlyargs else [],
            args=arguments.args if arguments.posonlyargs else first,
            vararg=arguments.vararg,
            kwonlyargs=arguments.kwonlyargs,
            kw_defaults=arguments.kw_defaults,
            kwarg=arguments.kwarg,
            defaults=arguments.defaults,
        )
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    text = f"{name}({ast.unparse(arguments)}){returned}".replace("_UNCHANGED", "...")
    if len(text) <= 96:
        return text
    parts = _split(ast.unparse(arguments))
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def _split(arguments: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, character in enumerate(arguments):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(arguments[start:i].strip())
            start = i + 1
    return [*parts, arguments[start:].strip()]


def _first(text: str | None) -> str:
    return inline((text or "").strip().split("\n\n")[0].replace("\n", " ")).strip()


def entry(library: Library, module: Module, name: str) -> list[str]:
    """Return one name's part of a page."""
    found = library.find(module, name)
    if found is None:
        return [f"## {name}", "", "A value.", ""]
    where, node = found
    if isinstance(node, ast.ClassDef):
        return _class(library, where, node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        doc = ast.get_docstring(node) or ""
        text = signature(node, name, False)
        return [f"## {name}", "", "```python", text, "```", "", *docstring(doc), ""]
    if isinstance(node, ast.Module):
        return [f"## {name}", "", _first(ast.get_docstring(node)), ""]
    return [f"## {name}", "", *_value(where, node), ""]


def _value(module: Module, node: ast.AST) -> list[str]:
    """Describe a constant by the comment above it."""
    lines = (SOURCE.joinpath(*module.name.split(".")[1:])).with_suffix(".py")
    if not lines.exists():
        lines = SOURCE.joinpath(*module.name.split(".")[1:]) / "__init__.py"
    above, at = [], getattr(node, "lineno", 1) - 2
    source = lines.read_text(encoding="utf-8").split("\n")
    while at >= 0 and source[at].lstrip().startswith("#"):
        above.insert(0, source[at].lstrip("#: ").strip())
        at -= 1
    shown = ast.unparse(node)
    code = ["", "```python", shown, "```"] if len(shown) <= 200 and "\n" not in shown else []
    return [inline(" ".join(above)) or "A value.", *code]


def _class(library: Library, module: Module, node: ast.ClassDef) -> list[str]:
    init = next(
        (i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == "__init__"), None
    )
    doc = ast.get_docstring(node) or ""
    text = signature(init, node.name, True).replace(" -> None", "") if init else _fields(node)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    out = [f"## {node.name}", "", "```python", text, "```", ""]
    if bases and not init:
        out += [f"A kind of `{bases}`.", ""]
    out += [*docstring(doc), ""]
    for name, item in library.methods(module, node).items():
        out += _method(node.name, name, item)
    return out


def _fields(node: ast.ClassDef) -> str:
    """Return the call of a dataclass or a named tuple, else just that it is a class."""
    marks = " ".join(map(ast.unparse, [*node.decorator_list, *node.bases]))
    if "dataclass" not in marks and "NamedTuple" not in marks:
        return f"class {node.name}"
    fields = [
        ast.unparse(item)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_")
    ]
    text = f"{node.name}({', '.join(fields)})"
    if len(text) <= 96:
        return text
    return f"{node.name}(\n" + "".join(f"    {item},\n" for item in fields) + ")"


def _method(owner: str, name: str, item: ast.AST) -> list[str]:
    if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
        doc = ast.get_docstring(item) or ""
        kinds = {ast.unparse(decorator) for decorator in item.decorator_list}
        if kinds & {"property", "functools.cached_property", "cached_property"}:
            kind = f": `{ast.unparse(item.returns)}`" if item.returns is not None else ""
            return [f"### {owner}.{name}", "", f"Property{kind}.", "", *docstring(doc), ""]
        call = ("await " if isinstance(item, ast.AsyncFunctionDef) else "") + signature(
            item, f"{owner}.{name}", True
        )
        return [f"### {owner}.{name}", "", "```python", call, "```", "", *docstring(doc), ""]
    assert isinstance(item, ast.Assign)
    assert isinstance(item.value, ast.Call)
    wrapped = next(a for a in item.value.args if isinstance(a, ast.Attribute))
    return [f"### {owner}.{name}", "", f"As `{ast.unparse(wrapped)}`, to be awaited.", ""]


def pages() -> dict[str, str]:
    """Return every page of the reference by file name."""
    library = Library()
    root = library.module("riemem")
    assert root is not None
    note = f"<!-- Made by `{COMMAND}`; changes belong into the docstrings. -->"
    result: dict[str, str] = {}
    places: dict[str, str] = {}
    summaries: dict[str, str] = {}
    for name in library.public_modules():
        module = library.module(name)
        assert module is not None
        names = module.public()
        if not names:
            continue
        file = f"{name.removeprefix('riemem.')}.md"
        parts = [note, "", f"# {name}", "", *docstring(ast.get_docstring(module.tree) or ""), ""]
        for public in sorted(names, key=lambda n: (n[0].islower(), n.lower())):
            part = entry(library, module, public)
            parts += part
        result[file] = re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"
        summaries[file] = _first(ast.get_docstring(module.tree))
        for public in names:
            places.setdefault(public, file)
    result["README.md"] = _index(library, root, note, places, summaries)
    return result


def top_names(library: Library, root: Module) -> list[str]:
    """Return the names of ``riemem.__all__``, those of ``errors`` included."""
    errors = library.module("riemem.errors")
    assert errors is not None
    return sorted({*root.public(), *errors.public()}, key=lambda n: (n[0].islower(), n.lower()))


def _index(
    library: Library, root: Module, note: str, places: dict[str, str], summaries: dict[str, str]
) -> str:
    rows, loose = [], []
    for name in top_names(library, root):
        found = library.find(root, name)
        where, node = found if found is not None else (root, root.tree)
        documented = isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.Module))
        own = f"{name}.md" if f"{name}.md" in summaries else ""
        text = summaries.get(own) or (
            _first(ast.get_docstring(node)) if documented else _value(where, node)[0]
        )
        file = own or places.get(name) or ""
        anchor = "" if own else f"#{name.lower()}"
        if not file:  # from a module without a page
            loose += entry(library, root, name)
            file = "README.md"
        rows.append(f"| [`{name}`]({file}{anchor}) | {text.replace('|', chr(92) + '|')} |")
    modules = [
        f"| [`riemem.{file[:-3]}`]({file}) | {text.replace('|', chr(92) + '|')} |"
        for file, text in sorted(summaries.items())
    ]
    lines = [
        note, "", "# Reference", "", _first(ast.get_docstring(root.tree)), "",
        "## `import riemem`", "", "| name | what |", "|---|---|", *rows, "",
        "## Modules", "", "| module | what |", "|---|---|", *modules, "", *loose,
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the pages and remove those that have no module any more."""
    made = pages()
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(made)} pages in {TARGET.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
