"""Tiny random models, for the golden files of models.py and convert.py."""

import importlib.metadata

for package, version in {"gguf": "0.19.0", "torch": "2.15.0", "transformers": "5.23.0"}.items():
    found = importlib.metadata.version(package)
    assert found.split("+")[0] == version, f"the golden files are those of {package} {version}, this is {found}"
