"""What ``blockyard plan`` refuses, and how one goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from api.support import make_api
from cli.command_line import invoke
from cli.test_plan import H100, LLAMA_8B, MIXED, plan_llama, write


def sentences(done: Result) -> str:
    """What it says on standard error, on one line."""
    return " ".join(done.stderr.split())


def test_a_refusal_has_code_sentence_figures_and_the_option_to_change(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--gpu-memory", "20GiB", "--weights", "17GiB")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert sentences(done).startswith(
        "Error: insufficient_memory: rank 0: a request of 131,072 tokens needs 17,179,869,184 bytes, and "
    )
    lines = done.stderr.splitlines()
    assert "  needed_bytes: 17,179,869,184 (16.0 GiB)" in lines
    assert "  estimated_max_model_len: 8,176" in lines
    assert sentences(done).endswith(
        "Options to change: --kv-cache-dtype, --max-model-len, --gpu-memory, --utilization, --weights, "
        "--tensor, --pipeline"
    )


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["--available-memory", "1GiB"], {"workers": [{"available_memory_bytes": 2**30}]}),
        (["--available-memory", "0"], {"workers": [{"available_memory_bytes": 0}]}),
        (
            ["--available-memory", "60GB", "--prefix-match-unit", "7"],
            {"workers": [{"available_memory_bytes": 60 * 10**9}], "prefix_match_unit": 7},
        ),
    ],
)
def test_a_refusal_for_programs_is_the_problem_of_the_api(
    arguments: list[str], fields: dict[str, Any], tmp_path: Path
) -> None:
    done = plan_llama(tmp_path, *arguments, "--json")
    with make_api() as api:
        expected = api.post("/v1/plans", json={"hf_config": LLAMA_8B, **fields})
    assert (done.exit_code, expected.status_code) == (1, 422)
    assert json.loads(done.stdout) == expected.json()
    assert done.stderr.startswith(f"Error: {expected.json()['code']}: ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "say how much memory a rank has, --gpu-memory 80GiB --weights 15GiB or"),
        (["--gpu-memory", "80G"], "write GiB for 1024^3 bytes, or GB for 1000^3"),
        (["--gpu-memory", "80", "--weights", "15GiB"], "80 is 80 bytes: 80GiB? For so few bytes write 80B"),
        (["--available-memory", "60GiB", "--kv-cache-dtype", "bf17"], "'bf17' is not one of 'auto'"),
        (["--gpu-memory", "1GiB", "--available-memory", "1GiB"], "stands in place of --gpu-memory"),
        (["--available-memory", "1GiB,1GiB", "--weights", "1B,2B,3B"], "has 2 values for 3 ranks"),
        (["--available-memory", "1GiB", "--max-model-len", "128k"], "or auto for what fits"),
        (["--available-memory", "1GiB", "--layout", "XYZ"], "'LBNHC'"),
        (["--available-memory", "1GiB", "--utilization", "90"], "0<x<=1"),
        (["--available-memory", "60GiB", "--plot", "plan.pdf"], "has to end in .svg or .png"),
        (["--available-memory", "60GiB", "--plot", "nowhere/plan.svg"], "there is no folder 'nowhere'"),
    ],
)
def test_a_mistake_in_the_arguments_exits_with_2_and_says_what_to_write(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    done = plan_llama(tmp_path, *arguments)
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.split())


def test_without_a_model_the_command_says_how_to_name_one() -> None:
    done = invoke("plan", *H100)
    assert done.exit_code == 2
    assert "--config config.json, or a whole request, --request plan.json" in done.stderr


@pytest.mark.parametrize("option", ["--config", "--request"])
def test_a_missing_file_is_a_mistake_in_the_arguments(option: str, tmp_path: Path) -> None:
    done = invoke("plan", option, tmp_path / "none.json", *H100)
    assert done.exit_code == 2
    assert "none.json' does not exist" in done.stderr


def test_a_folder_without_config_json_is_a_mistake_in_the_arguments(tmp_path: Path) -> None:
    done = invoke("plan", "--config", tmp_path, *H100)
    assert done.exit_code == 2
    assert "has no config.json" in done.stderr


@pytest.mark.parametrize("option", ["--config", "--request"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "is not JSON: "), ("[1]", "holds no JSON object"), ("[" * 100_000, "is not JSON: ")],
)
def test_a_file_that_is_no_object_exits_with_2_and_is_named(
    option: str, content: str, sentence: str, tmp_path: Path
) -> None:
    path = write(tmp_path, content)
    done = invoke("plan", option, path, *H100)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {path} {sentence}")


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    config = write(tmp_path, {"architectures": ["Pigeon"], "model_type": "pigeon"})
    done = invoke("plan", "--config", config, *H100)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: unsupported_model: ")
    assert "pigeon" in done.stderr
    assert "blockyard plan --request plan.json, with those of each rank under workers" in sentences(done)


def test_a_typo_in_a_request_is_named(tmp_path: Path) -> None:
    done = invoke("plan", "--request", write(tmp_path, {**MIXED, "max_model_length": 1}))
    assert done.exit_code == 2
    assert sentences(done) == "Error: invalid_request: max_model_length: is no field of this request"


def test_every_finding_of_an_invalid_request_is_told(tmp_path: Path) -> None:
    typos = {f"typo_{number}": 1 for number in range(5)}
    done = invoke("plan", "--request", write(tmp_path, {**MIXED, **typos}))
    assert [name for name in typos if f"{name}: is no field" in sentences(done)] == list(typos)


def test_a_configuration_given_as_a_request_is_recognized(tmp_path: Path) -> None:
    done = invoke("plan", "--request", write(tmp_path, LLAMA_8B))
    assert done.exit_code == 2
    assert "give that as --config" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--tensor", "3"], "--tensor"),
        (["--pipeline", "2", "--pipeline-partition", "3,4"], "--pipeline-partition"),
        (["--tensor", "4", "--available-memory", "60GiB,60GiB"], "--available-memory"),
    ],
)
def test_values_that_do_not_fit_each_other_exit_with_2_and_name_the_option(
    arguments: list[str], option: str, tmp_path: Path
) -> None:
    memory = [] if "--available-memory" in arguments else ["--available-memory", "60GiB"]
    done = plan_llama(tmp_path, *arguments, *memory)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: invalid_request: ")
    assert done.stderr.splitlines()[-1] == f"Options to change: {option}"


def test_for_programs_an_invalid_request_is_the_problem_of_the_api_too(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100, "--tensor", "3", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["code"] == "invalid_request"


@pytest.mark.parametrize("option", ["--block-size", "--kv-cache-dtype"])
def test_what_layers_say_themselves_is_refused_beside_them(option: str, tmp_path: Path) -> None:
    value = {"--block-size": "32", "--kv-cache-dtype": "fp8"}[option]
    done = invoke("plan", "--request", write(tmp_path, MIXED), option, value)
    assert done.exit_code == 2
    assert f"{option} goes with --config: in a request of layers it follows from the layers" in sentences(
        done
    )


def test_the_same_options_go_with_a_request_of_a_configuration(tmp_path: Path) -> None:
    request = write(tmp_path, {"hf_config": LLAMA_8B, "workers": [{"available_memory_bytes": 2**36}]})
    done = invoke("plan", "--request", request, "--block-size", "32", "--json")
    assert json.loads(done.stdout)["hash_block_size"] == 32


@pytest.mark.parametrize("columns", [60, 80])
def test_a_refusal_keeps_to_the_width(columns: int, tmp_path: Path) -> None:
    config = write(tmp_path, LLAMA_8B)
    done = invoke("plan", "--config", config, "--available-memory", "1GiB", COLUMNS=str(columns))
    lines = done.stderr.splitlines()
    assert columns - 20 < max(map(len, lines)) <= columns
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpu-memory", "20GiB", "--weights", "12.7GiB"],
        ["--gpu-memory", "33GiB", "--weights", "15GiB", "--utilization", "0.91"],
        ["--gpu-memory", "20GiB,15GiB", "--weights", "10GiB,8GiB", "--tensor", "2"],
        ["--gpu-memory", "20GiB", "--weights", "12GiB", "--pipeline", "2", "--pipeline-partition", "10,22"],
        ["--available-memory", "1GiB"],
        ["--available-memory", "1MiB"],
        ["--available-memory", "1GiB", "--pipeline", "3", "--block-size", "48"],
        ["--num-blocks", "1"],
        ["--num-blocks", "100", "--block-size", "32"],
    ],
)
def test_what_is_said_to_be_enough_is_and_little_less_is_not(arguments: list[str], tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *arguments)
    assert done.exit_code == 1
    enough = re.findall(r"(--[a-z-]+) ([\d.]+)(GiB|) or more", sentences(done))
    assert enough
    for option, number, unit in enough:
        others = list(arguments)
        if option in others:
            place = others.index(option)
            del others[place : place + 2]
        assert plan_llama(tmp_path, *others, option, f"{number}{unit}").exit_code == 0
        step = {"--num-blocks": 1, "--utilization": 0.002}.get(option, 0.2)
        less = f"{float(number) - step:.4g}{unit}"
        assert plan_llama(tmp_path, *others, option, less).exit_code == 1


def test_where_some_length_fits_auto_is_said_to_be_enough_and_is(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--available-memory", "1GiB")
    assert "or --max-model-len auto." in sentences(done)
    assert plan_llama(tmp_path, "--available-memory", "1GiB", "--max-model-len", "auto").exit_code == 0


def test_blocks_that_are_too_few_are_not_helped_by_memory(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--num-blocks", "100", *H100)
    assert done.stderr.splitlines()[-1] == "Options to change: --max-model-len, --num-blocks"


def test_without_a_configuration_no_option_says_how_to_read_one(tmp_path: Path) -> None:
    done = invoke("plan", "--request", write(tmp_path, MIXED), "--available-memory", "2MiB")
    assert done.exit_code == 1
    assert sentences(done).endswith("Options to change: --max-model-len, --available-memory")


def test_weights_that_leave_nothing_name_what_makes_room(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--gpu-memory", "80GiB", "--weights", "100GiB")
    assert done.exit_code == 2
    assert sentences(done).endswith(
        "Options to change: --gpu-memory, --utilization, --weights, --tensor, --pipeline"
    )
