"""A project's configuration: what it may say, what is reported about mistakes, and which value is in force."""

import json
from pathlib import Path

import pytest

from rag_context.projects.config import Traced, ValueSource, read_config
from rag_context.projects.records import (
    CriticalInclusion,
    FileSystemError,
    PromotionBoosts,
    PromotionLevel,
    RetrievalOptions,
    SchemaValidationError,
)
from tests.projects.sync_harness import configure


def rejected(path: Path) -> dict[str, str]:
    """What is reported against a configuration, by place."""
    with pytest.raises(SchemaValidationError) as caught:
        read_config(path)
    return {detail.field: detail.message for detail in caught.value.details}


def test_a_project_name_is_all_that_is_needed(tmp_path: Path) -> None:
    config = read_config(configure(tmp_path))
    assert (config.project_name, config.docs_path, config.external, config.custom_doc_types) == (
        "shop",
        "docs",
        None,
        (),
    )
    assert config.query_options == RetrievalOptions()
    search = config.search_options
    assert (search.min_relevance_score, search.max_results, search.include_critical) == (
        None,
        10,
        CriticalInclusion.NEVER,
    )


def test_every_configuration_key_is_accepted(tmp_path: Path) -> None:
    path = configure(
        tmp_path,
        **{"$schema": "https://example.com/any"},
        docs_path="knowledge/base",
        retrieval={
            "min_relevance_score": 0.8,
            "max_results": 5,
            "max_linked_docs": 3,
            "include_critical": False,
            "min_promotion_level": "important",
            "critical_boost": 0.2,
            "max_tokens": 4000,
        },
        semantic_search={"min_relevance_score": 0.4, "limit": 20},
        link_resolution={"max_depth": 1, "related_docs": True},
        external_docs={"path": "vendor", "include_patterns": ["**/*.md"], "exclude_patterns": ["old/"]},
        custom_doc_types=[{"name": "recipe", "description": "How to", "folder": "recipes", "schema_file": "r.json"}],
    )
    config = read_config(path)
    assert config.query_options == RetrievalOptions(
        min_relevance_score=0.8,
        max_results=5,
        max_linked_docs=3,
        max_link_depth=1,
        include_critical=CriticalInclusion.NEVER,
        min_promotion_level=PromotionLevel.IMPORTANT,
        boosts=PromotionBoosts(important=0.10, critical=0.2),
        follow_related_docs=True,
        max_tokens=4000,
    )
    assert config.search_options.max_results == 20
    assert config.external is not None
    assert config.external.exclude_patterns == ["old/"]
    assert config.custom_doc_types[0].folder == "recipes"


def test_boosting_can_be_switched_off(tmp_path: Path) -> None:
    assert read_config(configure(tmp_path, retrieval={"apply_relevance_boosting": False})).query_options.boosts is None


def test_the_call_comes_before_the_project_and_the_project_before_the_default(tmp_path: Path) -> None:
    config = read_config(configure(tmp_path, retrieval={"max_results": 5, "max_linked_docs": 3}))
    options = config.query_options.overridden(max_results=7, max_tokens=None)
    assert (options.max_results, options.max_linked_docs, options.max_link_depth) == (7, 3, 2)
    traced = config.traced()["rag_query"]
    assert Traced("max_results", 5, ValueSource.PROJECT) in traced
    assert Traced("max_linked_docs", 3, ValueSource.PROJECT) in traced
    assert Traced("max_link_depth", 2, ValueSource.DEFAULT) in traced
    assert Traced("max_tokens", 8000, ValueSource.DEFAULT) in traced
    assert Traced("min_relevance_score", None, ValueSource.DEFAULT) in config.traced()["semantic_search"]


@pytest.mark.parametrize(
    ("values", "place", "message"),
    [
        ({"project_name": "Shop"}, "project_name", "lower-case letter"),
        ({"project_name": "9shop"}, "project_name", "lower-case letter"),
        ({"project_name": "shop\n"}, "project_name", "lower-case letter"),
        ({"project_name": 7}, "project_name", "string"),
        ({"docs_path": ""}, "docs_path", "at least 1"),
        ({"docs_path": "a\0b"}, "docs_path", "pattern"),
        ({"retreival": {}}, "retreival", "not a setting"),
        ({"retrieval": {"max_result": 3}}, "retrieval.max_result", "not a setting"),
        ({"retrieval": {"max_results": "3"}}, "retrieval.max_results", "integer"),
        ({"retrieval": {"max_results": 0}}, "retrieval.max_results", "greater"),
        ({"retrieval": {"max_results": True}}, "retrieval.max_results", "integer"),
        ({"retrieval": {"min_relevance_score": 1.1}}, "retrieval.min_relevance_score", "less"),
        ({"retrieval": {"include_critical": "often"}}, "retrieval.include_critical", "always"),
        ({"link_resolution": {"max_depth": -1}}, "link_resolution.max_depth", "greater"),
        ({"external_docs": {}}, "external_docs.path", "missing"),
        (
            {"custom_doc_types": [{"name": "a", "folder": "a"}, {"name": "A b", "folder": "x"}]},
            "custom_doc_types[1].name",
            "pattern",
        ),
        ({"custom_doc_types": [{"name": "a", "folder": "a"}] * 2}, "custom_doc_types", "twice"),
        ({"custom_doc_types": {}}, "custom_doc_types", "list"),
    ],
)
def test_a_mistake_is_named_with_its_location(
    tmp_path: Path, values: dict[str, object], place: str, message: str
) -> None:
    said = rejected(configure(tmp_path, **values))
    assert message in said[place]


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    said = rejected(configure(tmp_path, project_name="", docs_path=1, retrieval={"max_results": 99}))
    assert set(said) == {"project_name", "docs_path", "retrieval.max_results"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{'project_name': 'x'}", "line 1, column 2"),
        (b"[]", "must be a JSON object"),
        (b"\xff\xfe{", "UTF-8"),
        (b'{"project_name": "a", "project_name": "b"}', "occurs twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "not valid JSON"),
        (b" " * ((1 << 20) + 1), "larger"),
    ],
)
def test_invalid_json_is_rejected_in_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = configure(tmp_path)
    path.write_bytes(content)
    with pytest.raises(SchemaValidationError, match=message):
        read_config(path)


def test_a_configuration_that_cannot_be_read_is_a_failure_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(FileSystemError, match="cannot be read"):
        read_config(tmp_path / ".rag-context" / "config.json")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = configure(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_config(path).project_name == "shop"


def test_the_other_tools_configuration_may_contain_its_own_keys(tmp_path: Path) -> None:
    path = tmp_path / ".csharp-compounding-docs" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"project_name": "shop", "file_watcher": {}, "retrieval": {"max_results": 4}}))
    config = read_config(path)
    assert config.query_options.max_results == 4
    assert config.warnings == ("'file_watcher' has no effect here and is ignored",)


def test_the_other_tools_own_keys_may_stand_anywhere_and_its_mistakes_are_still_named(tmp_path: Path) -> None:
    path = tmp_path / ".csharp-compounding-docs" / "config.json"
    path.parent.mkdir()
    theirs = {
        "project_name": "shop",
        "semantic_search": {"min_relevance_score": 0.4, "default_limit": 10},
        "custom_doc_types": [{"name": "adr", "folder": "adr", "trigger_phrases": ["decided"]}],
    }
    path.write_text(json.dumps(theirs))
    config = read_config(path)
    assert config.search_options.min_relevance_score == 0.4
    assert [each.name for each in config.custom_doc_types] == ["adr"]
    places = "semantic_search.default_limit", "custom_doc_types[0].trigger_phrases"
    assert config.warnings == tuple(f"{place!r} has no effect here and is ignored" for place in places)
    path.write_text(json.dumps({**theirs, "retrieval": {"max_results": "3"}}))
    assert set(rejected(path)) == {"retrieval.max_results"}


def test_the_other_tools_documents_are_in_its_own_folder_by_default(tmp_path: Path) -> None:
    path = tmp_path / ".csharp-compounding-docs" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"project_name": "shop"}))
    assert read_config(path).docs_path == "docs"
    (tmp_path / "csharp-compounding-docs").mkdir()
    assert read_config(path).docs_path == "csharp-compounding-docs"
    path.write_text(json.dumps({"project_name": "shop", "docs_path": "docs"}))
    assert read_config(path).docs_path == "docs"
