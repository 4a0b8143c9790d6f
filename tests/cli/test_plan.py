"""``blockyard plan`` from files and the line to the reply; what its other tests share."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from api.support import make_api
from cli.command_line import invoke
from server_process import COMMAND, environment

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
H100 = ["--gpu-memory", "80GiB", "--weights", "15GiB"]
"""0.9 * 80 - 15 = 57 GiB for blocks of 2 * 8 * 128 * 2 * 16 * 32 bytes, 2 MiB: 29,184."""

MIXED: dict[str, Any] = {
    "max_model_len": 4096,
    "workers": [
        {
            "available_memory_bytes": 2**30,
            "layers": {
                f"model.layers.{number}.attn": {
                    "kind": "sliding_window" if number % 2 else "full_attention",
                    "block_size": 16,
                    "num_kv_heads": 8,
                    "head_size": 128,
                    "dtype": "bfloat16",
                    **({"sliding_window": 1024} if number % 2 else {}),
                }
                for number in range(8)
            },
        }
    ],
}
"""Every other layer sees a window of 1,024 tokens."""


def write(folder: Path, document: object, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def plan_llama(folder: Path, *arguments: str | Path) -> Result:
    return invoke("plan", "--config", write(folder, LLAMA_8B), *arguments)


def reply(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def piped(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A real process with ``text`` on its standard input."""
    return subprocess.run(
        [*COMMAND, "plan", *arguments],
        input=text,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def lines_with(done: Result, words: str) -> list[str]:
    return [line for line in done.stdout.splitlines() if words in line]


def test_auto_goes_up_to_the_length_of_a_request_without_a_model(tmp_path: Path) -> None:
    request = write(tmp_path, MIXED)
    done = invoke("plan", "--request", request, "--max-model-len", "auto", "--json")
    assert reply(done)["max_model_len"] == 4096


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ([], {}),
        (["--kv-cache-dtype", "fp8"], {"kv_cache_dtype": "fp8"}),
        (["--kv-cache-dtype", "FP8_E5M2"], {"kv_cache_dtype": "fp8_e5m2"}),
        (["--kv-cache-dtype", "BF16"], {"kv_cache_dtype": "bfloat16"}),
        (["--tensor", "16", "--decode-context", "2"], {"parallel": {"tensor": 16, "decode_context": 2}}),
        (["--layout", "BLHNC", "--block-size", "32"], {"layout": "BLHNC", "block_size": 32}),
        (["--no-prefix-caching"], {"enable_prefix_caching": False}),
        (["--auto-fit", "--max-model-len", "9999"], {"auto_fit_max_model_len": True, "max_model_len": 9999}),
    ],
)
def test_json_is_the_reply_of_the_api(arguments: list[str], fields: dict[str, Any], tmp_path: Path) -> None:
    worker = {"total_memory_bytes": 80 * 2**30, "weights_bytes": 15 * 2**30}
    with make_api() as api:
        expected = api.post("/v1/plans", json={"hf_config": LLAMA_8B, "workers": [worker], **fields})
    assert expected.status_code == 200
    assert reply(plan_llama(tmp_path, *H100, *arguments, "--json")) == expected.json()


def test_a_request_file_is_planned_as_the_api_plans_it(tmp_path: Path) -> None:
    with make_api() as api:
        expected = api.post("/v1/plans", json=MIXED).json()
    assert reply(invoke("plan", "--request", write(tmp_path, MIXED), "--json")) == expected


def test_options_override_the_fields_of_a_request(tmp_path: Path) -> None:
    request = write(tmp_path, MIXED)
    done = invoke("plan", "--request", request, "--available-memory", "2GiB", "--layout", "BLNHC", "--json")
    plan = reply(done)
    assert (plan["layout"], plan["workers"][0]["available_memory_bytes"]) == ("BLNHC", 2 * 2**30)


def test_a_request_may_come_from_standard_input() -> None:
    done = piped(json.dumps(MIXED), "--request", "-", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["max_model_len"] == 4096


def test_a_configuration_may_come_from_standard_input() -> None:
    done = piped(json.dumps(LLAMA_8B), "--config", "-", *H100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("LlamaForCausalLM on 1 rank")


def test_only_one_file_may_come_from_standard_input() -> None:
    done = piped("{}", "--config", "-", "--request", "-")
    assert done.returncode == 2
    assert "only one can be read from standard input" in done.stderr


def test_a_folder_stands_for_its_config_json(tmp_path: Path) -> None:
    write(tmp_path, LLAMA_8B)
    assert invoke("plan", "--config", tmp_path, *H100).exit_code == 0


def test_help_teaches_with_sections_and_examples_at_the_end() -> None:
    shown = invoke("plan", "--help").stdout
    sections = ["The model:", "The memory of each rank:", "How the model is spread:", "Output:", "Examples:"]
    places = [shown.index(section) for section in sections]
    assert places == sorted(places)
    assert "    blockyard plan --config config.json --gpu-memory 80GiB --weights 15GiB" in shown


def test_a_number_of_blocks_needs_no_memory(tmp_path: Path) -> None:
    with make_api() as api:
        body = {"workers": [{"available_memory_bytes": 0}], "num_blocks_override": 10_000}
        expected = api.post("/v1/plans", json={"hf_config": LLAMA_8B, **body})
    assert reply(plan_llama(tmp_path, "--num-blocks", "10000", "--json")) == expected.json()


def test_a_number_of_blocks_needs_no_memory_in_a_request_of_layers(tmp_path: Path) -> None:
    request = {**MIXED, "workers": [{"layers": MIXED["workers"][0]["layers"]}]}
    done = invoke("plan", "--request", write(tmp_path, request), "--num-blocks", "5000", "--json")
    assert reply(done)["num_blocks"] == 5000


def test_sizes_are_rounded_against_the_plan(tmp_path: Path) -> None:
    """What there is down, what is taken up: 0.9 * 100.1 GiB and 0.7 GiB are no whole bytes."""
    config = write(tmp_path, LLAMA_8B)
    done = invoke("plan", "--config", config, "--available-memory", "40.1gib", "--json")
    assert reply(done)["workers"][0]["available_memory_bytes"] == 401 * 2**30 // 10
    done = invoke(
        "plan",
        "--config",
        config,
        "--gpu-memory",
        "80GiB",
        "--utilization",
        "1",
        "--weights",
        "9.9GiB",
        "--json",
    )
    assert reply(done)["workers"][0]["available_memory_bytes"] == 80 * 2**30 - -(-99 * 2**30 // 10)


def test_help_says_what_an_exit_status_means() -> None:
    shown = invoke("plan", "--help").stdout
    assert [
        line.split()[0] for line in shown.partition("Exit status:")[2].splitlines() if line[6:7].isdigit()
    ] == [
        "0",
        "1",
        "2",
    ]


def test_help_fits_80_columns() -> None:
    lines = invoke("plan", "--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []


def test_every_example_of_the_help_is_a_line_that_the_command_reads(tmp_path: Path) -> None:
    """But for the files: each example is run with ours in their place."""
    config, request = write(tmp_path, LLAMA_8B), write(tmp_path, MIXED, "plan.json")
    shown = invoke("plan", "--help").stdout.partition("Examples:")[2].partition("Exit status:")[0]
    lines = shown.replace("\\\n", " ").splitlines()
    examples = [line.split("blockyard plan")[1] for line in lines if "blockyard plan" in line]
    assert len(examples) == 6
    ours = {
        "config.json": config,
        "Llama-3.1-70B/": tmp_path,
        "plan.json": request,
        "plan.svg": tmp_path / "plan.svg",
        "-": config,
    }
    for example in examples:
        done = invoke("plan", *(ours.get(word, word) for word in example.split()))
        assert done.exit_code == 0, (example, done.stderr)
