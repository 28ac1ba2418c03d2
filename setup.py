import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


def version() -> str:
    namespace: dict[str, str] = {}
    exec((ROOT / 'rope_dense' / 'version.py').read_text(), namespace)
    return namespace['__version__']


class BuildWithConfigs(build_py):
    """Put configs, tools and guides into the package, where `mim` looks for the first two."""

    def run(self) -> None:
        super().run()
        if getattr(self, 'editable_mode', False):
            return
        target = Path(self.build_lib, 'rope_dense', '.mim')
        ignored = shutil.ignore_patterns('__pycache__')
        for folder in ('configs', 'tools'):
            shutil.copytree(
                ROOT / folder, target / folder, ignore=ignored, dirs_exist_ok=True
            )
        shutil.copy(ROOT / 'model-index.yml', target)
        clients = 'docs/clients'
        shutil.copytree(
            ROOT / clients, target / clients, ignore=ignored, dirs_exist_ok=True
        )
        for page in (ROOT / 'docs').glob('*.md'):  # which messages name
            shutil.copy(page, target / 'docs')


setup(
    name='rope_dense',
    version=version(),
    description='Rotary position embedding vision backbones for dense prediction with OpenMMLab',
    license='Apache-2.0',
    python_requires='>=3.11,<3.14',
    packages=find_packages(include=['rope_dense', 'rope_dense.*']),
    py_modules=['rope_dense_command'],
    entry_points={'console_scripts': ['rope-dense = rope_dense_command:main']},
    package_data={'': ['py.typed', '*.html', '*.yml']},
    cmdclass={'build_py': BuildWithConfigs},
    # The OpenMMLab packages exist in two families that use the same import names, so neither can be
    # required here: each is an extra, and importing rope_dense without them says what to install.
    # Before 2.6 torch's weights_only loading could be made to run code (CVE-2025-32434).
    # The weights that the configs name are on the Hugging Face hub, some as safetensors.
    install_requires=[
        'torch>=2.6',
        'numpy',
        'cachetools>=5.3',
        'tqdm',
        'huggingface_hub',
        'jinja2',
        'msgspec>=0.19,<0.23',
        'safetensors',
    ],
    extras_require={
        'onedl': [
            'onedl-mmengine>=0.10.12,<0.11',
            'onedl-mmcv>=2.3.6,<2.4',
            'onedl-mmdetection>=3.5.1,<3.6',
            'onedl-mmsegmentation>=1.4.2,<1.5',
        ],
        # mmengine comes with mmcv; its last, 0.10.7, cannot resume with torch >= 2.6.
        # mmsegmentation imports ftfy and regex without asking for them.
        'openmmlab': [
            'mmcv>=2.1.0,<2.2',
            'mmdet>=3.3.0,<3.4',
            'mmsegmentation>=1.2.2,<1.3',
            'ftfy',
            'regex',
        ],
        'export': [
            'onnx>=1.23,<1.24',
            'onnxscript>=0.7.2,<0.8',
            'onnxruntime>=1.23',
        ],
        # A second program that runs .onnx files, for `rope-dense export` to compare: 180 MB.
        'export-check': ['openvino>=2026.4,<2027'],
        'coco': ['faster-coco-eval>=1.8,<1.9'],
        # Beside the packages of [onedl]. It asks for no torchvision, which would replace torch.
        'oriented': ['onedl-mmrotate>=1.2.1,<1.3', 'faster-coco-eval>=1.8,<1.9'],
        'large': ['rasterio>=1.4,<1.5'],
        # timm, which some tests compare with, would bring a torchvision that replaces torch:
        # pip install --no-deps timm
        'test': ['pytest', 'hydra-core>=1.3,<1.4', 'omegaconf>=2.3,<2.4'],
    },
)
