"""The public names of attentest, each with the module that defines it: ``__init__.py`` and type checkers read this."""

from attentest import attention as attention
from attentest import contrast as contrast
from attentest import errors as errors
from attentest import noise as noise
from attentest import search as search
from attentest.cohort.cohort import Cohort as Cohort
from attentest.images.image_file import read_image as read_image
from attentest.images.preprocessing import Preprocessing as Preprocessing
from attentest.pipeline.attention_test import AttentionTest as AttentionTest
from attentest.pipeline.comparison import compare as compare
from attentest.pipeline.margins_figure import plot_margins as plot_margins
from attentest.results.batch import Results as Results
from attentest.results.result import AttentionTestResult as AttentionTestResult
from attentest.runs.process_engine import ProcessEngine as ProcessEngine
from attentest.runs.ray_engine import RayEngine as RayEngine
from attentest.simulation.calibrate import calibrate as calibrate
from attentest.simulation.noise_check.noise_check import noise_check as noise_check
from attentest.simulation.sanity import sanity as sanity
from attentest.simulation.simulate import plan as plan
from attentest.training.bundled import bundled_model as bundled_model

__version__: str
