"""Do the JPEGs that come back hold the masks that the model gives in this process?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbook.measuring.ensemble.images import Images, mask_agreement, requests_for
from workbook.measuring.ensemble.runs import Probe
from workbook.measuring.online.load import send_all
from workbook.serving.ensemble_server import EnsembleServer
from workbook.serving.ensemble_spec import ENSEMBLE

if TYPE_CHECKING:
    import pandas as pd


def check_answers(served: EnsembleServer, images: Images, records_path: Path, concurrency: int = 32) -> pd.DataFrame:
    """Send every image once to the ensemble and hold the JPEGs that come back against the masks made in this process.

    Returns:
        As `mask_agreement`.
    """
    load = Probe(concurrency).load(ENSEMBLE)
    requests = requests_for(ENSEMBLE, images, served.variant)
    result = send_all(served.server, load, requests, records_path, arm="answers", keep_outputs=True, progress=False)
    return mask_agreement(result.outputs or [], images)
