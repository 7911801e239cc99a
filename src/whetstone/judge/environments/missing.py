"""Packages that a program imports and its environment lacks: named in the reason of its verdict.

What is read here is text that the program wrote or raised. Forging it only loses: the verdict stays.
"""

from __future__ import annotations

import re

import msgspec

from whetstone.judge.environments.environment import COMPETITION, Environment
from whetstone.verdict import CaseJudgement, Judgement, Verdict

_SAID = re.compile(r"No module named '([A-Za-z_]\w*)(?:\.[\w.]*)?'", re.ASCII)
_MARK = "which the environment `"
# Modules by another name than that of the distribution to install.
_DISTRIBUTIONS = {
    **{"attr": "attrs", "Bio": "biopython", "bs4": "beautifulsoup4", "Crypto": "pycryptodome"},
    **{"Cryptodome": "pycryptodomex", "cv2": "opencv-python-headless", "dateutil": "python-dateutil"},
    **{"docx": "python-docx", "dotenv": "python-dotenv", "fitz": "PyMuPDF", "jwt": "PyJWT"},
    **{
        "Levenshtein": "levenshtein",
        "magic": "python-magic",
        "MySQLdb": "mysqlclient",
        "OpenSSL": "pyOpenSSL",
    },
    **{"PIL": "pillow", "pkg_resources": "setuptools", "serial": "pyserial", "skimage": "scikit-image"},
    **{"sklearn": "scikit-learn", "yaml": "PyYAML", "z3": "z3-solver"},
}
_KNOWN = frozenset(
    {
        *COMPETITION,
        *_DISTRIBUTIONS,
        *("aiohttp", "astropy", "bitarray", "blist", "chardet", "cryptography", "cvxpy", "dask", "django"),
        *(
            "faker",
            "fastapi",
            "flask",
            "folium",
            "gensim",
            "geopandas",
            "geopy",
            "gmpy2",
            "holidays",
            "httpx",
        ),
        *("intervaltree", "jax", "jinja2", "joblib", "keras", "librosa", "lxml", "markdown", "matplotlib"),
        *("mechanize", "more_itertools", "mpmath", "msgspec", "natsort", "nltk", "numba", "openpyxl"),
        *(
            "ortools",
            "plotly",
            "polars",
            "prettytable",
            "primesieve",
            "psutil",
            "pulp",
            "pyarrow",
            "pydantic",
        ),
        *(
            "pypdf",
            "PyPDF2",
            "pyrsistent",
            "pytest",
            "pytesseract",
            "pytz",
            "regex",
            "reportlab",
            "requests",
            "rsa",
            "seaborn",
            "sexpdata",
        ),
        *("shapely", "six", "soundfile", "spacy", "sqlalchemy", "statsmodels", "tensorflow", "textblob"),
        *("toolz", "torch", "torchvision", "tqdm", "transformers", "typing_extensions", "urllib3"),
        *("werkzeug", "wikipedia", "wordcloud", "xgboost", "xlrd", "xlwt", "xmltodict"),
    }
)


def missing_package(reason: str, environment: Environment) -> str:
    """The package that a reason says is not here, if it is a known one; empty otherwise."""
    found = _SAID.search(reason)
    name = found[1] if found else ""
    return name if name in _KNOWN and name not in environment.modules else ""


def named_missing(judgement: Judgement, environment: Environment) -> Judgement:
    """The judgement with its environment's name, and in its reasons how to have what is missing there."""
    cases = [_explained(case, environment) for case in judgement.cases]
    return msgspec.structs.replace(
        judgement,
        cases=cases,
        reason=_with_way_out(judgement.reason, judgement.verdict, environment),
        environment=environment.label,
    )


def _explained(case: CaseJudgement, environment: Environment) -> CaseJudgement:
    reason = _with_way_out(case.reason, case.verdict, environment)
    return case if reason == case.reason else msgspec.structs.replace(case, reason=reason)


def _with_way_out(reason: str, verdict: Verdict, environment: Environment) -> str:
    if verdict is Verdict.ACCEPTED or not reason or _MARK in reason:
        return reason
    if not (name := missing_package(reason, environment)):
        return reason
    return f"{reason} ({_MARK}{environment.name}` lacks: {way_out(name, environment)})"


def way_out(name: str, environment: Environment) -> str:
    """What a person does to have a package."""
    if environment.is_default and name in COMPETITION:
        return "pip install 'whetstone-rl[programs]'"
    return f"whetstone judge environment create NAME {_DISTRIBUTIONS.get(name, name)}"


def lacks_package(reason: str) -> bool:
    """Whether a judgement's reason says that its environment lacks a package."""
    return _MARK in reason
