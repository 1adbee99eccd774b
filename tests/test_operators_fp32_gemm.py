"""Products with 32-bit weights: against the published times, and monotone in every size."""

import numpy as np
import pytest

from planner.errors import PlannerError
from planner.steptime.operators.fp32_gemm import FP32_GEMMS, Fp32Gemm, fp32_gemm_s

TOKENS = np.array([4, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1024])
# 256 x 6,144 on a GB200 [µs], vllm-project/vllm#47973
MEASURED = {"fp32": (20.2, 16.7, 22.3, 63.2, 63.4, 63.3, 64.1, 69.3, 77.8, 96.8, 111.0),
            "tf32": (12.0, 12.0, 12.2, 19.9, 20.0, 20.1, 20.2, 20.2, 22.6, 25.8, 32.8)}
PEAKS = {"fp32": 80e12, "tf32": 1250e12}


@pytest.mark.parametrize("name", FP32_GEMMS)
def test_times_are_those_of_the_published_table(name: str) -> None:
    found = fp32_gemm_s(TOKENS, 256, 6144, flops_per_s=PEAKS[name], bandwidth_bytes_per_s=8e12,
                        constants=FP32_GEMMS[name]) * 1e6
    off = np.abs(found / np.array(MEASURED[name]) - 1)
    assert np.median(off) < 0.05
    assert off.max() < 0.25


def test_a_case_by_hand() -> None:
    """4 µs, 1,000 sums of 1 ns, 2e9 operations at half of 1e14, and 6e6 bytes at 0.9 of 1e12."""
    constants = Fp32Gemm(depth_s=1e-9, split_depth_s=1e-10, flops_frac=0.5)
    found = fp32_gemm_s(1000, 1000, 1000, flops_per_s=1e14, bandwidth_bytes_per_s=1e12, constants=constants)
    assert found == pytest.approx(4e-6 + 1e-6 + 40e-6 + 6e-6 / 0.9)


@pytest.mark.parametrize("name", FP32_GEMMS)
def test_more_of_anything_takes_longer(name: str) -> None:
    def seconds(m: float, n: float, k: float) -> float:
        return float(fp32_gemm_s(m, n, k, flops_per_s=75e12, bandwidth_bytes_per_s=7.7e12, constants=FP32_GEMMS[name]))

    sizes = (64.0, 256.0, 3072.0)
    for i in range(3):
        larger = [size * (1 + (i == j)) for j, size in enumerate(sizes)]
        assert seconds(*larger) > seconds(*sizes)
    times = fp32_gemm_s(np.arange(1, 2048), 256, 3072, flops_per_s=75e12, bandwidth_bytes_per_s=7.7e12,
                        constants=FP32_GEMMS[name])
    assert (np.diff(times) > 0).all()


@pytest.mark.parametrize("wrong", [-1e-9, float("nan")])
def test_constants_are_not_negative(wrong: float) -> None:
    with pytest.raises(PlannerError):
        Fp32Gemm(depth_s=wrong, split_depth_s=1e-9, flops_frac=0.5)
