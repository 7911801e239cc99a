"""Explain missing packages: if a program imports a package that its environment lacks, the reason names it.

The reason is text that the program wrote or raised. Forging it has no effect on the verdict.
"""

from __future__ import annotations

import re

import msgspec

from whetstone.core.optional_packages import install_command
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.judge.environments.environment import COMPETITION, PackageEnvironment

_IMPORT_ERROR = re.compile(r"No module named '([A-Za-z_]\w*)(?:\.[\w.]*)?'", re.ASCII)
_MARK = "which the environment `"
# Modules whose distribution has another name.
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
# Other modules of known packages.
_KNOWN_MODULES = (
    "aiohttp astropy bitarray blist chardet cryptography cvxpy dask django faker fastapi flask folium "
    "gensim geopandas geopy gmpy2 holidays httpx intervaltree jax jinja2 joblib keras librosa lxml "
    "markdown matplotlib mechanize more_itertools mpmath msgspec natsort nltk numba openpyxl ortools "
    "plotly polars prettytable primesieve psutil pulp pyarrow pydantic pypdf PyPDF2 pyrsistent "
    "pytesseract pytest pytz regex reportlab requests rsa seaborn sexpdata shapely six soundfile spacy "
    "sqlalchemy statsmodels tensorflow textblob toolz torch torchvision tqdm transformers "
    "typing_extensions urllib3 werkzeug wikipedia wordcloud xgboost xlrd xlwt xmltodict"
)
_KNOWN = frozenset({*COMPETITION, *_DISTRIBUTIONS, *_KNOWN_MODULES.split()})


def missing_package(reason: str, environment: PackageEnvironment) -> str:
    """Return the missing package that a reason names, if it is a known one; empty otherwise."""
    found = _IMPORT_ERROR.search(reason)
    name = found[1] if found else ""
    return name if name in _KNOWN and name not in environment.modules else ""


def explain_missing_packages(judgement: Judgement, environment: PackageEnvironment) -> Judgement:
    """Return the judgement with the name of its environment, and with remedies for missing packages."""
    cases = [_with_explanation(case, environment) for case in judgement.cases]
    return msgspec.structs.replace(
        judgement,
        cases=cases,
        reason=_explain_reason(judgement.reason, judgement.verdict, environment),
        environment=environment.label,
    )


def _with_explanation(case: CaseJudgement, environment: PackageEnvironment) -> CaseJudgement:
    reason = _explain_reason(case.reason, case.verdict, environment)
    return case if reason == case.reason else msgspec.structs.replace(case, reason=reason)


def _explain_reason(reason: str, verdict: Verdict, environment: PackageEnvironment) -> str:
    if verdict is Verdict.ACCEPTED or not reason or _MARK in reason:
        return reason
    if not (name := missing_package(reason, environment)):
        return reason
    return f"{reason} ({_MARK}{environment.name}` lacks: {way_out(name, environment)})"


def way_out(name: str, environment: PackageEnvironment) -> str:
    """Return the command that installs a package."""
    if environment.is_default and name in COMPETITION:
        return install_command("programs")
    return f"whetstone judge environment create NAME {_DISTRIBUTIONS.get(name, name)}"


def lacks_package(reason: str) -> bool:
    """Return whether a reason says that the environment lacks a package."""
    return _MARK in reason
