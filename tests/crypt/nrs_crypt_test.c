// SPDX-License-Identifier: GPL-2.0-only
/*
 * Inline encryption for a disk without it, to test devices above the disk. Nothing is encrypted,
 * but requests with a key use a keyslot.
 *
 * Parameters: "disk", at load, the path of the disk. "submit": a write of the path of a device
 * submits writes with a key to the device, and then evicts the key. It fails with EIO if a write
 * fails, ENOKEY if the key does not reach a keyslot of the disk, and EKEYREJECTED if the key stays
 * there.
 */

#include <linux/bio.h>
#include <linux/blk-crypto-profile.h>
#include <linux/blk-crypto.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/module.h>
#include <linux/mutex.h>

#define WRITES 16
#define DATA_UNIT 4096
#define UNITS 8 /* of a write */

static char *disk;
module_param(disk, charp, 0);

static struct blk_crypto_profile profile;
static struct file *opened;

static DEFINE_MUTEX(lock);
static struct blk_crypto_key key;
static atomic_t programmed, evicted, pending, failed;
static DECLARE_COMPLETION(ended);

static int program(struct blk_crypto_profile *p, const struct blk_crypto_key *k, unsigned int slot)
{
	/* Device-mapper passes on the key itself. */
	if (k == &key)
		atomic_inc(&programmed);
	return 0;
}

static int evict(struct blk_crypto_profile *p, const struct blk_crypto_key *k, unsigned int slot)
{
	if (k == &key)
		atomic_inc(&evicted);
	return 0;
}

static void end_write(struct bio *bio)
{
	if (bio->bi_status)
		atomic_inc(&failed);
	bio_put(bio);
	if (atomic_dec_and_test(&pending))
		complete(&ended);
}

static void submit_writes(struct block_device *bdev)
{
	int i, unit;

	reinit_completion(&ended);
	atomic_set(&pending, WRITES);
	atomic_set(&failed, 0);
	for (i = 0; i < WRITES; i++) {
		u64 dun[BLK_CRYPTO_DUN_ARRAY_SIZE] = { i * UNITS };
		struct bio *bio = bio_alloc(bdev, UNITS, REQ_OP_WRITE, GFP_KERNEL);

		bio->bi_iter.bi_sector = i * (UNITS * DATA_UNIT >> SECTOR_SHIFT);
		bio->bi_end_io = end_write;
		for (unit = 0; unit < UNITS; unit++)
			__bio_add_page(bio, ZERO_PAGE(0), DATA_UNIT, 0);
		bio_crypt_set_ctx(bio, &key, dun, GFP_KERNEL);
		blk_crypto_submit_bio(bio);
	}
	wait_for_completion_io(&ended);
}

static int submit(const char *path, const struct kernel_param *kp)
{
	static const u8 bytes[64] = { 1 };
	struct file *file;
	int ret;

	mutex_lock(&lock);
	file = bdev_file_open_by_path(path, BLK_OPEN_READ | BLK_OPEN_WRITE, NULL, NULL);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto unlock;
	}
	ret = blk_crypto_init_key(&key, bytes, sizeof(bytes), BLK_CRYPTO_KEY_TYPE_RAW,
				  BLK_ENCRYPTION_MODE_AES_256_XTS, sizeof(u64), DATA_UNIT,
				  BLK_CRYPTO_CFG_ALLOW_HW);
	if (!ret)
		ret = blk_crypto_start_using_key(file_bdev(file), &key);
	if (ret)
		goto close;
	atomic_set(&programmed, 0);
	atomic_set(&evicted, 0);
	submit_writes(file_bdev(file));
	blk_crypto_evict_key(file_bdev(file), &key);
	if (atomic_read(&failed))
		ret = -EIO;
	else if (!atomic_read(&programmed))
		ret = -ENOKEY;
	else if (!atomic_read(&evicted))
		ret = -EKEYREJECTED;
close:
	bdev_fput(file);
unlock:
	mutex_unlock(&lock);
	return ret;
}

static const struct kernel_param_ops submit_ops = { .set = submit };
module_param_cb(submit, &submit_ops, NULL, 0200);

static int __init nrs_crypt_test_init(void)
{
	int ret;

	opened = bdev_file_open_by_path(disk, BLK_OPEN_READ | BLK_OPEN_WRITE, NULL, NULL);
	if (IS_ERR(opened))
		return PTR_ERR(opened);
	ret = blk_crypto_profile_init(&profile, 1);
	if (ret)
		goto close;
	profile.ll_ops.keyslot_program = program;
	profile.ll_ops.keyslot_evict = evict;
	profile.max_dun_bytes_supported = sizeof(u64);
	profile.key_types_supported = BLK_CRYPTO_KEY_TYPE_RAW;
	profile.modes_supported[BLK_ENCRYPTION_MODE_AES_256_XTS] = DATA_UNIT;
	if (blk_crypto_register(&profile, bdev_get_queue(file_bdev(opened))))
		return 0;
	ret = -EINVAL;
	blk_crypto_profile_destroy(&profile);
close:
	bdev_fput(opened);
	return ret;
}

static void __exit nrs_crypt_test_exit(void)
{
	bdev_get_queue(file_bdev(opened))->crypto_profile = NULL;
	blk_crypto_profile_destroy(&profile);
	bdev_fput(opened);
}

module_init(nrs_crypt_test_init);
module_exit(nrs_crypt_test_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Inline encryption for a disk without it");
