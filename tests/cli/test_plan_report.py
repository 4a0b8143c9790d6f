"""What ``blockyard plan`` tells people."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import Result

from cli.command_line import invoke
from cli.test_plan import H100, LLAMA_8B, MIXED, plan_llama, reply, write
from server_process import COMMAND, environment

MODELS = Path(__file__).parents[1] / "planning" / "data" / "models"


def plan_model(model: str, *arguments: str, **variables: str) -> Result:
    done = invoke("plan", "--config", MODELS / f"{model}.json", *arguments, **variables)
    assert done.exit_code == 0, done.stderr
    return done


def lines_with(done: Result, words: str) -> list[str]:
    return [line for line in done.stdout.splitlines() if words in line]


def sentences(done: Result) -> str:
    """What it says, on one line."""
    return " ".join(done.stdout.split())


def test_the_first_sentence_answers_what_every_operator_asks(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100)
    assert done.exit_code == 0
    assert " ".join(done.stdout.split()).startswith(
        "LlamaForCausalLM on 1 rank serves 3.56 requests of 131,072 tokens at a time, from 29,184 blocks of "
        "16 tokens. 131,072 bytes a token a rank, bfloat16. "
        "The longest request that fits has 466,928 tokens; the model's own maximum is 131,072."
    )


def test_a_group_is_a_row_with_its_figures_and_its_layers_in_short(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100)
    [row] = lines_with(done, "full_attention")
    assert row.split() == ["0", "full_attention", "32", "bfloat16", "16", "131,072", "2,097,152", "8,192"]
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
    assert row.split()[:4] == ["0-2", "sliding_window", "2", "each"]
    assert row.split()[-2:] == ["257", "each"]


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


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize(
    "model", ["deepseek-v3.2", "kimi-linear-48b-a3b", "llama-4-scout", "whisper-large-v3"]
)
def test_lines_keep_to_the_width_and_end_in_no_blanks(model: str, columns: int) -> None:
    done = plan_model(
        model, "--gpu-memory", "141GiB", "--pipeline", "2", "--max-model-len", "auto", COLUMNS=str(columns)
    )
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("columns", [60, 80])
def test_names_of_layers_stay_whole_where_a_line_holds_them(columns: int) -> None:
    done = plan_model("deepseek-v3.2", "--gpu-memory", "141GiB", COLUMNS=str(columns))
    assert "model.layers.{0-60}.self_attn.indexer.k_cache" in done.stdout.splitlines()


def test_auto_cuts_the_longest_request_to_what_fits_and_says_so(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--available-memory", "1GiB", "--max-model-len", "auto")
    assert "max_model_len is cut from 131,072 to 8,176 tokens" in done.stdout


def test_blocks_beyond_the_memory_are_warned_of(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--available-memory", "20GiB", "--num-blocks", "20480")
    assert "Warning: num_blocks_override: 20,480 blocks take 21,474,836,480 bytes more" in " ".join(
        done.stdout.split()
    )
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


def test_the_null_block_serves_no_request(tmp_path: Path) -> None:
    """Eleven times 8,192 blocks are ten requests and a block less than one."""
    done = plan_llama(tmp_path, "--num-blocks", str(11 * 8192))
    assert "serves 10.99 requests of 131,072 tokens" in sentences(done)


def test_the_models_own_maximum_is_told_only_where_it_is_shorter(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--available-memory", "10GiB", "--max-model-len", "auto")
    assert "the model's own maximum" not in sentences(done)


def test_a_bound_on_blocks_is_none_on_what_the_model_can_do(tmp_path: Path) -> None:
    window = {
        **LLAMA_8B,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": 4096,
    }
    done = invoke("plan", "--config", write(tmp_path, window), *H100)
    expected = "A request of any length fits, as its blocks have a bound; the model's own maximum is 131,072."
    assert expected in sentences(done)


def test_each_group_tells_what_a_token_of_it_takes_and_how_it_is_stored() -> None:
    done = plan_model("jamba-v0.1", "--gpu-memory", "80GiB", "--tensor", "2", "--kv-cache-dtype", "fp8")
    [states] = lines_with(done, "mamba")
    [attention] = lines_with(done, "full_attention")
    assert "bfloat16," in states
    block = reply(
        plan_model(
            "jamba-v0.1", "--gpu-memory", "80GiB", "--tensor", "2", "--kv-cache-dtype", "fp8", "--json"
        )
    )
    tokens = block["workers"][0]["groups"][-1]["block_size"]
    assert states.split()[-4:-2] == [f"{tokens:,}", f"{block['workers'][0]['bytes_per_block']:,}"]
    assert "float8_e4m3fn" in attention
    assert " 4,096 " in attention  # 4 layers of 2 * 4 heads of 128 bytes


def test_ranks_with_unlike_layers_have_their_figures_under_each_other() -> None:
    done = plan_model("kimi-linear-48b-a3b", "--gpu-memory", "80GiB", "--tensor", "2", "--pipeline", "2")
    assert "bytes are one rank's, under each other where ranks have more or fewer layers" in sentences(done)


def test_a_token_is_counted_where_it_is_kept(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, *H100, "--tensor", "16", "--decode-context", "2")
    assert "16,384 bytes a token a rank (which keeps 1 token of 2), bfloat16" in sentences(done)


def test_blocks_for_tokens_in_flight_are_told_with_the_option_that_bounds_them() -> None:
    expected = "Group 0: 512 of 521 blocks a request are for tokens in flight; fewer with a lower "
    assert f"{expected}--max-in-flight-tokens, now 8,192." in sentences(
        plan_model("gpt-oss-20b", "--gpu-memory", "80GiB")
    )
    assert (
        "in flight"
        not in plan_model("gpt-oss-20b", "--gpu-memory", "80GiB", "--max-in-flight-tokens", "64").stdout
    )


def test_blocks_without_a_memory_have_no_bars_and_exceed_nothing(tmp_path: Path) -> None:
    done = plan_llama(tmp_path, "--num-blocks", "10000")
    assert "10,000 blocks take 19.5 GiB of a rank, the null block included." in done.stdout.splitlines()
    assert "held back" not in done.stdout
    assert "Warning" not in done.stdout
