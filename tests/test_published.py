import pandas as pd
import pytest
from scipy import stats

from workbook.analysis.published import published_figures, published_names
from workbook.errors import SettingError


def test_every_table_reads_and_names_its_source_in_each_row() -> None:
    known = (
        "article_batch_times",
        "article_ranking",
        "article_significance",
        "ensemble_printouts",
        "ensemble_throughput",
    )
    assert published_names() == known
    for name in published_names():
        source = published_figures(name)["source"]
        assert source.notna().all() and source.str.contains("article|issue 2760|issue 3245").all()


def test_unknown_table_names_the_ones_there_are() -> None:
    with pytest.raises(SettingError, match="ensemble_throughput"):
        published_figures("article")


def test_article_means_make_its_five_times() -> None:
    mean_ms = published_figures("article_batch_times").set_index("arm")["mean_ms"]
    assert mean_ms["online"] / mean_ms["batch"] == pytest.approx(4.82, abs=0.01)


def test_article_t_follows_from_238_batches_an_arm_not_340() -> None:
    times = published_figures("article_batch_times").set_index("arm")
    stated = published_figures("article_significance").set_index("quantity")["value"]

    def t_test(batches: int) -> tuple[float, float]:
        arms = [(times.loc[arm, "mean_ms"], times.loc[arm, "std_ms"], batches) for arm in ("online", "batch")]
        result = stats.ttest_ind_from_stats(*arms[0], *arms[1])
        return float(result.statistic), float(result.pvalue)

    assert t_test(238)[0] == pytest.approx(stated["t_statistic"], abs=0.01)
    assert t_test(238)[1] == pytest.approx(stated["p_value"], rel=0.02)
    assert t_test(340)[0] == pytest.approx(20.38, abs=0.01)


def test_ensemble_ran_at_45_percent_of_its_slower_member() -> None:
    table = published_figures("ensemble_throughput")
    posted: pd.Series = table[table["connections"] == 128].set_index("model")["requests_per_s_mean"]
    slower_member = posted[["sfpn16", "pypost16"]].min()
    assert posted["sfpn16_pypost16"] / slower_member == pytest.approx(0.45, abs=0.005)
