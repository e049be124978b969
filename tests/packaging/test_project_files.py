"""What the project says of itself agrees: versions, licence, citation, requirements."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import kaestat

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
EXTRAS = "cli docs llm mutation parquet plots ray simulations test trl verl vllm"


def test_version_is_the_same_everywhere():
    assert PROJECT["version"] == kaestat.__version__ == CITATION["version"]
    heading = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).group(1)
    assert heading == ("Unreleased" if "dev" in PROJECT["version"] else PROJECT["version"])


def test_citation_is_that_of_the_readme():
    paper = CITATION["preferred-citation"]
    readme = (ROOT / "README.md").read_text()
    field = dict(re.findall(r"^  (\w+)\s*= \{(.*)\},?$", readme, re.MULTILINE))
    assert paper["title"] == field["title"].replace("{", "").replace("}", "")
    authors = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    assert " and ".join(authors) == field["author"] and str(paper["year"]) == field["year"]


def test_every_requirement_has_a_lower_bound_and_every_promised_extra_is_there():
    extras = PROJECT["optional-dependencies"]
    assert sorted(extras) == EXTRAS.split()
    for text in [*PROJECT["dependencies"], *(text for texts in extras.values() for text in texts)]:
        required = Requirement(text)
        if required.name == "kaestat":
            assert required.extras <= set(extras)
        else:
            assert any(bound.operator in (">=", "==") for bound in required.specifier), text


def test_extra_named_by_a_message_exists():
    named = {
        extra
        for path in (ROOT / "kaestat").rglob("*.py")
        for extras in re.findall(r"kaestat\[([\w,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert {"cli", "parquet", "plots"} <= named <= set(PROJECT["optional-dependencies"])
