"""What ``blockyard plan`` draws."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from blockyard.server.commands.plan.chart import value_ticks
from cli.command_line import invoke
from cli.test_plan import H100, LLAMA_8B, plan_llama, write
from server_process import environment

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
SVG = "{http://www.w3.org/2000/svg}"
MAMBA = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "num_hidden_layers": 64,
    "hidden_size": 4096,
    "expand": 2,
    "num_heads": 128,
    "head_dim": 64,
    "n_groups": 8,
    "state_size": 128,
    "conv_kernel": 4,
    "torch_dtype": "bfloat16",
}


def words_of(picture: Path) -> list[str]:
    root = ET.parse(picture).getroot()  # noqa: S314 - we made it
    assert root.tag == f"{SVG}svg"
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_an_svg_is_a_picture_with_what_it_shows_in_words(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    assert plan_llama(tmp_path, *H100, "--tensor", "4", "--plot", picture).exit_code == 0
    words = words_of(picture)
    for expected in (
        "LlamaForCausalLM",
        "4 ranks (tensor 4), 57.0 GiB a rank for the cache",
        "32,768 bytes a token a rank, bfloat16",
        "116,736 blocks, longest request that fits: 1,867,760 tokens",
        "max_model_len 131,072: 14.24 requests",
        "max_model_len 131,072: 8,192 blocks",
        "context length (tokens; k = 1,024, M = 1,048,576), to the model's maximum, 131,072",
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


def test_a_length_that_does_not_fit_is_shaded_up_to_the_models_maximum(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    plan_llama(tmp_path, "--available-memory", "10GiB", "--max-model-len", "auto", "--plot", picture)
    assert "no request so long fits" in words_of(picture)


def test_a_length_above_the_models_maximum_is_shaded(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    plan_llama(tmp_path, *H100, "--max-model-len", "200000", "--plot", picture)
    assert "above the model's maximum, 131,072" in words_of(picture)


def test_a_plan_of_states_has_two_figures_or_more_on_each_axis(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    config = write(tmp_path, MAMBA)
    done = invoke("plan", "--config", config, *H100, "--max-model-len", "4096", "--plot", picture)
    assert done.exit_code == 0, done.stderr
    words = words_of(picture)
    assert {"100", "200", "500", "1", "2"} <= set(words)  # 213 requests, one block a request
    assert "stored as bfloat16 and float32" in words


@pytest.mark.parametrize(
    ("least", "most", "ticks"),
    [
        (0.5, 2, [1, 2]),
        (122, 488, [100, 200, 500]),
        (110, 180, [100, 200]),
        (5, 2000, [10, 100, 1000]),
        (2, 60, [2, 5, 10, 20, 50]),
    ],
)
def test_an_axis_has_at_least_two_ticks_and_no_more_than_it_needs(
    least: float, most: float, ticks: list[int]
) -> None:
    assert value_ticks(least, most) == ticks


def test_a_picture_of_blocks_alone_tells_what_they_take(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    plan_llama(tmp_path, "--num-blocks", "10000", "--plot", picture)
    assert "1 rank, 19.5 GiB a rank for the cache" in words_of(picture)
