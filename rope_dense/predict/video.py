"""Predict the frames of a video, a camera or a stream; the drawn ones become a video again."""

import errno
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from ..data.images.sources import Source, Video
from ..utils.errors import UsageError
from ..utils.progress import progress
from .inferencer import predict_batch
from .share import Predictor, chunks


def video_file(folder: Path, video: Video) -> Path:
    """The drawn video."""
    return folder / f'{video.name}.mp4'


def predict_video(predictor: Predictor, video: Video) -> None:
    """Predict all frames, write the drawn video, and finish the files.

    A camera or a stream ends with Ctrl-C.
    """
    output = predictor.output
    writer = predictor.writer
    target = video_file(output.folder, video)
    number = 0
    with output.results.write(target) as file:
        drawn = DrawnVideo(file, target, video.rate)
        frames = progress(video.frames(), 'frames', video.count)
        try:
            for images in chunks(frames, predictor.batch):
                samples = predict_batch(predictor.inferencer, images, predictor.batch)
                for image, sample in zip(images, samples, strict=True):
                    name = f'{video.name}/{number:06d}.jpg'
                    frame = Source(Path(video.given), name, name)
                    drawn.add(writer.add(frame, image, sample))
                    number += 1
        except KeyboardInterrupt:
            if video.count:
                raise
        finally:
            drawn.close()
        drawn.check(number)
    print(f'{number} frames drawn: {target}')
    print(writer.finish())
    output.forget()


@dataclass
class DrawnVideo:
    """A video that is written frame by frame.

    Args:
        file: that is written.
        target: its name in errors.
        rate: frames a second.
    """

    file: Path
    target: Path
    rate: float
    video: cv2.VideoWriter | None = None

    def add(self, frame: np.ndarray) -> None:
        """Add a frame (BGR); UsageError if OpenCV has no writer for its size."""
        if self.video is None:
            height, width = frame.shape[:2]
            code = cv2.VideoWriter.fourcc(*'mp4v')
            size = (width, height)
            self.video = cv2.VideoWriter(str(self.file), code, self.rate, size)
            if not self.video.isOpened():
                raise UsageError(
                    f'{self.target}: OpenCV writes no video of {width} x {height} pixels; predict '
                    'its frames as images, or a smaller video'
                )
        self.video.write(frame)

    def close(self) -> None:
        if self.video is not None:
            self.video.release()

    def check(self, number: int) -> None:
        """Raise OSError unless all frames are in the file: OpenCV is silent on a full disk."""
        if not number:
            self.file.unlink()
            return
        capture = cv2.VideoCapture(str(self.file))
        written = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        capture.release()
        if 0 <= written < number:
            raise OSError(errno.ENOSPC, f'{written} of {number} frames were written')
