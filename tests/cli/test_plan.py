"""``blockyard plan`` from the line to what it prints, draws and refuses."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
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

MIXED = {
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

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
SVG = "{http://www.w3.org/2000/svg}"


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


def test_the_first_sentence_answers_what_every_operator_asks(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100)
    assert done.exit_code == 0
    assert " ".join(done.stdout.split()).startswith(
        "LlamaForCausalLM on 1 rank serves 3.56 requests of 131,072 tokens at a time, 466,944 tokens in all, "
        "from 29,184 blocks of 16 tokens. The longest request that fits has 466,928 tokens."
    )


def test_a_group_is_a_row_with_its_figures_and_its_layers_in_short(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100)
    [row] = lines_with(done, "full_attention")
    assert row.split() == ["0", "full_attention", "32", "16", "65,536", "2,097,152", "8,192"]
    assert "0   model.layers.{0-31}.self_attn.attn" in done.stdout.splitlines()


def test_equal_groups_share_a_row(tmp_path: Path) -> None:
    request = json.loads(json.dumps(MIXED))
    layers = request["workers"][0]["layers"]
    for number in range(0, 8, 4):  # 2 full, 6 windows: groups of 2
        layers[f"model.layers.{number}.attn"] = {
            **layers["model.layers.1.attn"],
            "kind": "sliding_window",
        }
    done = invoke("plan", "--request", write(tmp_path, request))
    [row] = lines_with(done, "sliding_window")
    assert row.split()[:3] == ["0-2", "sliding_window", "2"]


def test_memory_is_told_part_by_part(tmp_path: Path) -> None:
    [bar, sizes] = [
        line for line in plan_llama(tmp_path, *H100).stdout.splitlines() if line.startswith("rank 0  ")
    ]
    assert " ".join(sizes.split()) == "rank 0 15.0 GiB 57.0 GiB 2.0 MiB 0 B 8.0 GiB"
    assert bar.endswith("  80.0 GiB")


def test_a_bar_is_to_scale(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--gpu-memory", "80GiB", "--weights", "32GiB")  # 40, 50 and 10 %
    bar = lines_with(done, "rank 0  ")[0]
    columns = [bar.count(sign) for sign in "█▓·"]
    assert columns == [round(sum(columns) * share) for share in (0.4, 0.5, 0.1)]


def test_equal_ranks_are_told_once(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100, "--tensor", "4")
    assert len(lines_with(done, "ranks 0-3")) == 3  # bar, sizes, tensors
    assert not lines_with(done, "rank 0")


def test_ranks_with_other_memory_have_bars_of_their_own(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--tensor", "4", "--available-memory", "20GiB,20GiB,30GiB,20GiB")
    assert [line.partition("  ")[0] for line in lines_with(done, "▓▓▓")] == ["ranks 0-1,3", "rank 2"]
    assert "10.0 GiB" in lines_with(done, "rank 2")[1]  # left over, for the others' sake


def test_stages_have_tensors_of_their_own_layers(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100, "--pipeline", "2", "--pipeline-partition", "10,22")
    assert "model.layers.{0-9}.self_attn.attn" in done.stdout
    assert "model.layers.{10-31}.self_attn.attn" in done.stdout


def test_long_lists_are_cut_unless_all_are_asked_for(tmp_path: Path) -> None:
    config = write(tmp_path, LLAMA_8B)
    arguments = ["plan", "--config", str(config), *H100, "--tensor-form", "slots"]
    cut, whole = invoke(*arguments), invoke(*arguments, "--tensors")
    assert "... and 20 more tensors: --tensors prints all, --json too" in cut.stdout
    assert "model.layers.31.self_attn.attn" not in cut.stdout
    assert "model.layers.31.self_attn.attn" in whole.stdout


def test_no_line_is_longer_than_80_columns(tmp_path: Path) -> None:
    request = write(tmp_path, MIXED, "plan.json")
    for done in (plan_llama(tmp_path, *H100, "--tensor", "8"), invoke("plan", "--request", request)):
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_auto_cuts_the_longest_request_to_what_fits_and_says_so(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--available-memory", "1GiB", "--max-model-len", "auto")
    assert "max_model_len is cut from 131,072 to 8,176 tokens" in done.stdout


def test_auto_goes_up_to_the_length_of_a_request_without_a_model(tmp_path: Path) -> None:
    request = write(tmp_path, MIXED)
    done = invoke("plan", "--request", request, "--max-model-len", "auto", "--json")
    assert reply(done)["max_model_len"] == 4096


def test_blocks_beyond_the_memory_are_warned_of(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--available-memory", "20GiB", "--num-blocks", "20480")
    assert "Warning: num_blocks_override: 20480 blocks take" in done.stdout
    assert "40.0 GiB of 20.0 GiB" in done.stdout


def test_what_the_planner_warns_of_is_printed(tmp_path: Path) -> None:
    request = write(tmp_path, MIXED)
    done = invoke("plan", "--request", request, "--no-hybrid-groups")
    warnings = reply(invoke("plan", "--request", request, "--no-hybrid-groups", "--json"))["warnings"]
    assert warnings
    for warning in warnings:
        assert f"Warning: {warning}" in " ".join(done.stdout.split())


def test_a_model_that_keeps_nothing_is_said_to(tmp_path: Path) -> None:
    request = {"max_model_len": 10, "workers": [{"available_memory_bytes": 100, "layers": {}}]}
    done = invoke("plan", "--request", write(tmp_path, request))
    assert done.exit_code == 0
    assert "keeps nothing for its requests" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ([], {}),
        (["--kv-cache-dtype", "fp8"], {"kv_cache_dtype": "fp8"}),
        (["--tensor", "2", "--decode-context", "2"], {"parallel": {"tensor": 2, "decode_context": 2}}),
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


def test_a_terminal_without_unicode_gets_ascii(tmp_path: Path) -> None:
    arguments = ["plan", "--config", str(write(tmp_path, LLAMA_8B)), *H100]
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment({"PYTHONIOENCODING": "ascii"}),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"rank 0  ####" in done.stdout


def test_a_refusal_has_code_sentence_figures_and_the_option_to_change(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--gpu-memory", "20GiB", "--weights", "17GiB")
    assert done.exit_code == 1
    assert done.stdout == ""
    first, *figures, options = done.stderr.splitlines()
    assert first.startswith("Error: insufficient_memory: rank 0: a request of 131072 tokens needs ")
    assert "  needed_bytes: 17,179,869,184 (16.0 GiB)" in figures
    assert "  estimated_max_model_len: 8,176" in figures
    assert options == "Options to change: --max-model-len, --gpu-memory, --weights"


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
        ([], "say how much memory a rank has: --gpu-memory 80GiB --weights 15GiB"),
        (["--gpu-memory", "80Gb"], "'Gb' would be bits: write GiB"),
        (["--gpu-memory", "1GiB", "--available-memory", "1GiB"], "stands in place of --gpu-memory"),
        (["--available-memory", "1GiB,1GiB", "--weights", "1,2,3"], "has 2 values for 3 ranks"),
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
def test_a_file_that_is_no_object_exits_with_1_and_is_named(
    option: str, content: str, sentence: str, tmp_path: Path
) -> None:
    path = write(tmp_path, content)
    done = invoke("plan", option, path, *H100)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {path} {sentence}")


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    config = write(tmp_path, {"architectures": ["Pigeon"], "model_type": "pigeon"})
    done = invoke("plan", "--config", config, *H100)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: unsupported_model: ")
    assert "pigeon" in done.stderr


def test_a_typo_in_a_request_is_named(tmp_path: Path) -> None:
    done = invoke("plan", "--request", write(tmp_path, {**MIXED, "max_model_length": 1}))
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: invalid_request: max_model_length: is no field of this request")


def test_every_finding_of_an_invalid_request_is_told(tmp_path: Path) -> None:
    typos = {f"typo_{number}": 1 for number in range(5)}
    done = invoke("plan", "--request", write(tmp_path, {**MIXED, **typos}))
    assert [name for name in typos if f"{name}: is no field" in done.stderr] == list(typos)


def test_a_configuration_given_as_a_request_is_recognized(tmp_path: Path) -> None:
    done = invoke("plan", "--request", write(tmp_path, LLAMA_8B))
    assert done.exit_code == 2
    assert "give that as --config" in done.stderr


def test_an_svg_is_a_picture_with_what_it_shows_in_words(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    assert plan_llama(tmp_path, *H100, "--tensor", "4", "--plot", picture).exit_code == 0
    root = ET.parse(picture).getroot()  # noqa: S314 - we made it
    assert root.tag == f"{SVG}svg"
    words = "\n".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    for expected in (
        "LlamaForCausalLM",
        "4 ranks (tensor 4), 57.0 GiB a rank for the cache",
        "max_model_len 131,072: 14.25 requests",
        "max_model_len 131,072: 8,192 blocks",
        "context length (tokens",
        "full_attention, 16 tokens a block",
    ):
        assert expected in words


def test_a_png_is_one_and_of_a_size_to_read(tmp_path: Path) -> None:
    picture = tmp_path / "plan.PNG"
    done = plan_llama(tmp_path, *H100, "--plot", picture)
    assert done.stdout.endswith(f"\nDrawn: {picture}\n")
    content = picture.read_bytes()
    assert content.startswith(PNG_MAGIC)
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    assert (width, height) == (1200, 1050)


def test_the_same_plan_gives_the_same_svg(tmp_path: Path) -> None:
    pictures = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for picture in pictures:
        plan_llama(tmp_path, *H100, "--plot", picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_model_without_a_curve_is_not_drawn(tmp_path: Path) -> None:
    request = {"max_model_len": 10, "workers": [{"available_memory_bytes": 100, "layers": {}}]}
    picture = tmp_path / "plan.svg"
    done = invoke("plan", "--request", write(tmp_path, request), "--plot", picture)
    assert done.exit_code == 1
    assert "there is no curve" in done.stderr
    assert not picture.exists()


def test_a_plot_without_matplotlib_names_the_extra_that_brings_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; from blockyard.server.command_line import main; main()"
    )
    config = write(tmp_path, LLAMA_8B)
    arguments = ["plan", "--config", str(config), *H100, "--plot", str(tmp_path / "plan.svg")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "Error: --plot needs the package 'matplotlib': pip install 'blockyard[plot]'\n"


def test_help_teaches_with_sections_and_examples_at_the_end() -> None:
    shown = invoke("plan", "--help").stdout
    sections = ["The model:", "The memory of each rank:", "How the model is spread:", "Output:", "Examples:"]
    places = [shown.index(section) for section in sections]
    assert places == sorted(places)
    assert "    blockyard plan --config config.json --gpu-memory 80GiB --weights 15GiB" in shown
